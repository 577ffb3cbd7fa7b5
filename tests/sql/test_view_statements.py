"""Statements about sources and views."""

from __future__ import annotations

import pytest

from penstock.errors import SqlError
from penstock.model import Column
from penstock.model.view import Source
from penstock.sql import (
    CreateSource,
    CreateView,
    DropSource,
    DropView,
    ExplainView,
    RefreshView,
    ShowSources,
    ShowViews,
    parse_script,
)

SCRIPT = """
CREATE SOURCE a (k BIGINT, v DECIMAL(10, 2)) USING parquet OPTIONS (path '/data/a') KEY (k) CHANGES BY SNAPSHOT;
CREATE SOURCE b USING postgres OPTIONS (url 'postgresql:///x', table 'public.b');
CREATE SOURCE c USING postgres OPTIONS (table 'c') CHANGES BY TABLE audit.c_log;
CREATE SOURCE d USING query OPTIONS (query 'hot');
CREATE MATERIALIZED VIEW v REFRESH EVERY 10 SECONDS MAINTAIN BY conditional AS
  SELECT a.k FROM a, b WHERE a.k = b.k;
CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM a;
REFRESH MATERIALIZED VIEW v; REFRESH VIEW v FULL;
SHOW SOURCES; SHOW VIEWS; EXPLAIN VIEW v;
DROP VIEW IF EXISTS v; DROP MATERIALIZED VIEW w; DROP SOURCE a
"""


def test_statements_say_what_they_mean():
    select = "SELECT a.k FROM a, b WHERE a.k = b.k"
    assert parse_script(SCRIPT) == [
        CreateSource(
            Source(
                "a", (Column("k", "bigint"), Column("v", "decimal(10,2)")), "parquet", (("path", "/data/a"),), ("k",)
            )
        ),
        CreateSource(
            Source("b", (), "postgres", (("table", "public.b"), ("url", "postgresql:///x")), changes="trigger")
        ),
        CreateSource(Source("c", (), "postgres", (("table", "c"),), changes="table", change_table="audit.c_log")),
        CreateSource(Source("d", (), "query", (("query", "hot"),))),
        CreateView("v", select, 7, 3, 10_000_000, "conditional"),
        CreateView("w", "SELECT count(*) AS n FROM a", 8, 31),
        RefreshView("v"),
        RefreshView("v", full=True),
        ShowSources(),
        ShowViews(),
        ExplainView("v"),
        DropView("v", if_exists=True),
        DropView("w"),
        DropSource("a"),
    ]


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("CREATE SOURCE s", 16, "Expected USING"),
        ("CREATE SOURCE s USING oracle", 23, "Expected POSTGRES or PARQUET"),
        ("CREATE SOURCE s USING parquet CHANGES BY TRIGGER", 42, "cannot tell its changes by trigger"),
        ("CREATE SOURCE s USING postgres CHANGES BY magic", 43, "Expected TRIGGER or TABLE or SNAPSHOT or STREAM"),
        ("CREATE SOURCE s USING postgres CHANGES BY STREAM", 43, "cannot tell its changes by stream"),
        ("CREATE SOURCE s (k BIGINT, k INT) USING parquet", 28, "declared twice"),
        ("CREATE SOURCE _s USING parquet", 15, "reserved"),
        ("CREATE MATERIALIZED VIEW v SELECT 1", 28, "Expected REFRESH EVERY"),
        ("CREATE MATERIALIZED VIEW v AS 1", 31, "Expected SELECT"),
        ("CREATE MATERIALIZED VIEW v REFRESH EVERY AS SELECT 1", 42, "Expected a length of time"),
        ("DROP VIEW v w", 13, "Unexpected 'w'"),
    ],
)
def test_mistakes_are_shown_where_they_are(text, column, fragment):
    with pytest.raises(SqlError) as caught:
        parse_script(text)
    assert fragment in caught.value.message
    assert caught.value.column == column
