from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.cli.query import add_statement
from penstock.errors import RegistrationError
from penstock.model.view import Source
from penstock.storage.local import LocalStore
from penstock.storage.place import local_path, state_path
from penstock.views.catalog import ViewCatalog

ELSEWHERE = [
    "s3a://bucket/x", "s3://b/x", "hdfs://name:9000/x", "hdfs:/x", "abfss://c@a.dfs.core.windows.net/x", "abfss:x",
    "gs://b", "dbfs:/x",
    "file://other/x", "file:x", "S3A://b/x",
]  # fmt: skip


@pytest.mark.parametrize("given", ["/x/y", "x/y", "./x", "a:b", "x/s3a:y", "C:x", "", "~x"])
def test_a_path_stays_as_it_is(given):
    assert local_path(given, "sink", "") == given


@pytest.mark.parametrize(
    "given", ["file:///x/y", "file:/x/y", "FILE:///x/y", "file://localhost/x/y", Path("file:///x/y")]
)
def test_a_file_url_is_a_path(given):
    assert local_path(given, "sink", "") == "/x/y"
    assert local_path(Path("/x/a b%").as_uri(), "sink", "") == "/x/a b%"


@pytest.mark.parametrize("given", [*ELSEWHERE, Path("s3a://bucket/x")])
def test_what_is_not_on_this_machine_is_refused_with_the_remedy(given):
    with pytest.raises(
        RegistrationError, match=r"state directory '.*' is no folder on this machine.*mounted here, or in"
    ):
        state_path(given)


@pytest.mark.parametrize("option", ["--state", "--into"])
@pytest.mark.parametrize("given", ["hdfs://name:9000/x", "hdfs:/x", "dbfs:/x"])
def test_the_command_line_makes_no_folder_of_such_a_name(option, given, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rest = ["--state", "here"] if option == "--into" else []
    with pytest.raises(SystemExit) as left:
        main(["query", "add", "q", "SELECT 1", option, given, *rest])
    assert left.value.code == 2
    assert "is no folder on this machine" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_sink_given_as_a_file_url_is_asked_for_as_a_path():
    assert "INTO '/x/y'" in add_statement(
        "q", "SELECT 1", into=Path(local_path("file:///x/y", "", "")), from_state=False, replace=False
    )


def test_a_source_of_files_elsewhere_is_for_spark(tmp_path):
    catalog = ViewCatalog(None, LocalStore(str(tmp_path)))
    with pytest.raises(RegistrationError, match=r"source 's': path 's3a://b/x' is no folder .*using='dataframe'"):
        catalog.add_source(Source("s", (), "parquet", (("path", "s3a://b/x"),), (), "snapshot", None))
    with pytest.raises(RegistrationError, match=rf"no Parquet file in '{tmp_path}'"):
        catalog.add_source(Source("s", (), "parquet", (("path", tmp_path.as_uri()),), (), "snapshot", None))
