"""The example of views runs as its comments say, and its views follow what changes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.demo.shop import server
from penstock.sql import CreateSource, CreateView, parse_script, parse_view
from penstock.storage.local import LocalStore
from penstock.views.view import Parts, ViewHandle
from tests.views.postgres import Session

EXAMPLE = Path(__file__).parents[2] / "examples" / "views.sql"


FIRST = {
    "sold": [("Ann", date(2026, 2, 1), "pen", Decimal("3.00"))],
    "revenue": [("Ann", 1, Decimal("3.00"), date(2026, 2, 1))],
}
LAST = {
    "sold": [("Anna", date(2026, 2, 1), "pen", Decimal("3.00")), ("Anna", date(2026, 3, 1), "pen", Decimal("4.50"))],
    "revenue": [("Anna", 2, Decimal("7.50"), date(2026, 3, 1))],
}


def line(k: int, amount: int) -> pa.Table:
    return pa.table({
        "k": pa.array([k], pa.int64()), "item": ["pen"], "amount": pa.array([amount], pa.int32()),
        "price": pa.array(["1.50"]).cast(pa.decimal128(10, 2)),
    })  # fmt: skip


@pytest.mark.spark
def test_the_example_keeps_its_views_fresh_while_rows_change(tmp_path):
    text = EXAMPLE.read_text(encoding="utf-8")
    lines = tmp_path / "shop" / "lines"
    lines.mkdir(parents=True)
    with server() as url:
        session = Session(url)
        session.execute(*(c.removeprefix("--").strip() for c in text.splitlines() if c.startswith(("--   CREATE ",))))
        session.execute("INSERT INTO customers VALUES (1, 'Ann')", "INSERT INTO orders VALUES (10, 1, '2026-02-01')")
        pq.write_table(line(10, 2), lines / "0.parquet")
        (tmp_path / "views.sql").write_text(text.replace("postgresql:///shop", url), encoding="utf-8")
        command = [sys.executable, "-m", "penstock", "run", "views.sql", "--state", "state", "--for", "300s"]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=os.environ) as run:
            try:
                until(run, "revenue: version 1, computed")
                assert rows(tmp_path / "state") == FIRST
                session.execute("INSERT INTO orders VALUES (11, 1, '2026-03-01')", "UPDATE customers SET name = 'Anna'")
                pq.write_table(line(11, 3), lines / "1.parquet")
                until(run, "revenue: version 2, refreshed by")
                deadline = time.monotonic() + 240  # the changes of three sources may come in one version or in several
                while (found := rows(tmp_path / "state")) != LAST:
                    assert time.monotonic() < deadline, found
                    time.sleep(0.1)
            finally:
                run.terminate()
            rest = run.stdout.read()
        session.close()
    assert run.returncode == 0
    assert "on demand" not in rest
    assert "revenue" in rest
    assert rows(tmp_path / "state") == LAST


def rows(state: Path) -> dict[str, list[tuple]]:
    """What the views of the example hold, as another process sees it that asks no source for anything."""
    text = EXAMPLE.read_text(encoding="utf-8")
    statements = parse_script(text)
    sources = {s.source.name: s.source for s in statements if isinstance(s, CreateSource)}
    readers = {name: SimpleNamespace(source=source) for name, source in sources.items()}
    found = {}
    for statement in statements:
        if isinstance(statement, CreateView):
            view = parse_view(statement.select, sources, name=statement.name)
            handle = ViewHandle(Parts(view, readers, LocalStore(str(state)), f"views/{statement.name}"))
            found[statement.name] = sorted(tuple(row.values()) for row in handle.to_arrow().to_pylist())
            handle.close()
    return found


def until(run: subprocess.Popen, text: str) -> None:
    """Read what the run prints until it says this."""
    deadline, seen = time.monotonic() + 240, ""
    while text not in seen:
        assert time.monotonic() < deadline, seen
        found = run.stdout.readline()
        assert found, seen
        seen += found
