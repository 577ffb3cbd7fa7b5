"""Which options hold a secret, and how they look without it."""

import pytest

from penstock.model import Reader, Sink, Stream
from penstock.model.secrets import is_secret, literal_secrets, masked, withheld

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{}";'


@pytest.mark.parametrize(
    "name",
    ["password", "PASSWORD", "db_passwd", "ssl.key.password", "kafka.sasl.jaas.config", "client_secret", "auth.token",
     "accessKey", "secret.key",
     "fs.azure.account.key", "credentials", "ssl.key", "key", "pwd", "access_tokens", "kafka.ssl.keystore.key"],
)  # fmt: skip
def test_names_of_secrets(name):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "path",
        "dbtable",
        "url",
        "user",
        "keyspace",
        "key.deserializer",
        "topic",
        "header",
        "maxFilesPerTrigger",
        "tokenizer",
        "recordkey.field",
    ],
)
def test_names_of_others(name):
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("password", "hunter2", "${withheld}"),
        ("password", "${DB_PASSWORD}", "${DB_PASSWORD}"),
        ("password", "${file:/run/secrets/db}", "${file:/run/secrets/db}"),
        ("kafka.sasl.jaas.config", JAAS.format("x"), "${withheld}"),
        ("kafka.sasl.jaas.config", JAAS.format("${ENV:PW}"), JAAS.format("${ENV:PW}")),
        ("url", "postgresql://u:p@ss/w@db:5432/shop?x=1", "postgresql://u:${withheld}@db:5432/shop?x=1"),
        ("url", "postgresql://u:${ENV:PW}@db/shop", "postgresql://u:${ENV:PW}@db/shop"),
        ("url", "postgresql://${ENV:U}:${ENV:PW}@db/shop", "postgresql://${ENV:U}:${ENV:PW}@db/shop"),
        ("url", "postgresql://${ENV:U}:hunter2@db/shop", "postgresql://${ENV:U}:${withheld}@db/shop"),
        (
            "url",
            "jdbc:postgresql://db/shop?user=u&password=p&ssl=true",
            "jdbc:postgresql://db/shop?user=u&password=${withheld}&ssl=true",
        ),
        (
            "url",
            "jdbc:sqlserver://db:1433;user=u;password={p};x=1",
            "jdbc:sqlserver://db:1433;user=u;password=${withheld};x=1",
        ),
        ("url", "jdbc:oracle:thin:scott/tiger@//db:1521/x", "jdbc:oracle:thin:scott/${withheld}@//db:1521/x"),
        ("url", "host=db user=u password='p w'", "host=db user=u password=${withheld}"),
        ("spark.mongodb.connection.uri", "mongodb://u:p@a,b/db", "mongodb://u:${withheld}@a,b/db"),
        ("path", "s3a://id:secret@bucket/x", "s3a://id:${withheld}@bucket/x"),
        ("url", "jdbc:postgresql://db:5432/shop", "jdbc:postgresql://db:5432/shop"),
        ("url", "http://db:8080/a@b", "http://db:8080/a@b"),
        ("query", "SELECT * FROM t WHERE password = 'x'", "SELECT * FROM t WHERE password = 'x'"),
        ("password", "", ""),
    ],
)
def test_literal_secrets_are_withheld_and_references_stay(name, value, stored):
    options = ((name, value),)
    assert withheld(options) == ((name, stored),)
    assert withheld(withheld(options)) == withheld(options)
    assert bool(literal_secrets(options)) == (stored != value)
    assert literal_secrets(((name, stored),)) == {}
    assert masked(options) == masked(withheld(options))


def test_a_sink_is_the_same_whatever_its_secrets_are():
    one = Sink("jdbc", url="jdbc:postgresql://u:a@db/x", dbtable="t", password="a")
    other = Sink("jdbc", url="jdbc:postgresql://u:${ENV:PW}@db/x", dbtable="t", password="b")
    assert one.same(other)
    assert one.same(one.stored)
    assert str(one) == str(other) == str(one.stored)
    assert not one.same(Sink("jdbc", url="jdbc:postgresql://u:a@db/y", dbtable="t", password="a"))
    assert not one.same("x")


def test_a_stream_is_the_same_whatever_the_secrets_of_its_source_are():
    streams = [Stream("s", (), "ts", 0, source=Reader("kafka", (("token", value),))) for value in ("hunter2", "${T}")]
    assert streams[0].same(streams[1])
    assert streams[0].stored.source == Reader("kafka", (("token", "${withheld}"),))
    assert "hunter2" not in repr(streams[0])
    assert not streams[0].same(Stream("s", (), "ts", 1, source=streams[0].source))
