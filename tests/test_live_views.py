"""`penstock run` of views alone: what is refreshed, and what is reported."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli import main as cli
from penstock.cli.monitor_views import refresh_once
from penstock.state.manifest import Manifest
from penstock.state.registry import Registry
from penstock.storage.local import LocalStore
from penstock.views.catalog import ViewCatalog
from penstock.views.statements import execute_view_statement

SOURCES = "".join(f"CREATE SOURCE {name} USING parquet OPTIONS (path '{name}');\n" for name in "xy")
VIEWS = """CREATE MATERIALIZED VIEW v AS SELECT x.k FROM x, y WHERE x.k = y.k;
CREATE MATERIALIZED VIEW w REFRESH EVERY 1 HOUR AS SELECT x.k FROM x, y WHERE x.k = y.k;
"""


def put(number):
    for name in "xy":
        Path(name).mkdir(exist_ok=True)
        pq.write_table(pa.table({"k": [number]}), Path(name, f"{number}.parquet"))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs `penstock run` on views in an empty folder, without Spark; returns the exit code and each view's rows."""
    monkeypatch.chdir(tmp_path)
    Path("views.sql").write_text(SOURCES + VIEWS)

    def run_now(*arguments):
        catalog = ViewCatalog(None, LocalStore(str(tmp_path / "state"), durable=False))
        rows = {}

        def execute(statement, text, _parsed):
            return execute_view_statement(catalog, statement, text)

        def stop():
            rows.update({name: len(view.to_arrow()) for name, view in catalog.views.items()})

        engine = SimpleNamespace(
            execute_statement=execute, catalog=SimpleNamespace(registry=Registry()), manifest=Manifest,
            view_catalog=catalog,
            spark=SimpleNamespace(stop=stop),
        )  # fmt: skip
        monkeypatch.setattr(cli, "start_spark", lambda *_: engine)
        return cli.main(["run", "views.sql", "--available-now", *arguments]), rows

    return run_now


def test_each_run_brings_views_up_to_date_and_tells_only_what_it_has_done(run, capsys):
    put(1)
    assert run() == (0, {"v": 1, "w": 1})
    out = capsys.readouterr().out
    assert "v: version 1, computed" in out
    assert "w: version 1, computed" in out
    put(2)
    assert run() == (0, {"v": 2, "w": 2})
    out = capsys.readouterr().out
    # From changes or from scratch, by what this machine measured.
    assert "v: version 2, " in out
    assert "w: version 2, " in out
    assert "version 1," not in out
    assert run() == (0, {"v": 2, "w": 2})
    assert "version 2," not in capsys.readouterr().out


def test_a_view_that_cannot_be_refreshed_is_3_and_the_others_are_refreshed(run, capsys):
    put(1)
    run()
    Path("x", "2.parquet").write_text("no Parquet")
    Path("views.sql").write_text(SOURCES + VIEWS.splitlines()[0] + "\nCREATE MATERIALIZED VIEW z AS SELECT k FROM y;")
    pq.write_table(pa.table({"k": [2]}), "y/2.parquet")
    assert run() == (3, {"v": 1, "z": 2})
    assert "views.sql: error: view 'v' was not refreshed: " in capsys.readouterr().err


def test_no_view_is_refreshed_after_an_interrupt():
    stop = threading.Event()
    stop.set()
    assert list(refresh_once({"v": None}, since=0.0, stop=stop)) == []
