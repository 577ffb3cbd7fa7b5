"""Views that share a source and are refreshed at the same time: each is right, whenever the others move on."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Column
from penstock.model.view import Source
from penstock.planner.views.strategies import STRATEGIES
from penstock.reference.view import answer, canonical
from penstock.storage.local import LocalStore
from penstock.views import catalog as catalogs
from penstock.views.catalog import ViewCatalog
from penstock.views.rows import slices
from penstock.views.sources import versions
from tests.effort import examples
from tests.views.test_parquet import write

COLUMNS = (Column("k", "bigint"), Column("v", "string"))
NAMES = ("a", "b", "c")
CHAIN = "SELECT a.v AS x, b.k AS y, c.v AS z FROM a, b, c WHERE a.k = b.k AND b.v = c.v"
FOUR = "SELECT a.v AS x, b.k AS y, c.v AS z, d.v AS w FROM a, b, c, a AS d WHERE a.k = b.k AND b.v = c.v AND c.k = d.k"
TOTALS = "SELECT a.v, count(*) AS n, max(b.k) AS last FROM a, b WHERE a.k = b.k GROUP BY a.v"


@pytest.fixture(autouse=True)
def merged_and_settled_at_once(monkeypatch):
    """Files live as short as they can."""
    monkeypatch.setattr(slices, "FEW", 2)
    monkeypatch.setattr(versions, "FEW_ROWS", 4)
    monkeypatch.setattr(catalogs, "_SETTLE_EVERY", 1)


def catalog(root) -> ViewCatalog:
    made = ViewCatalog(None, LocalStore(str(root / "state"), durable=False), None)
    for name in NAMES:
        (root / name).mkdir(exist_ok=True)
        made.add_source(Source(name, COLUMNS, "parquet", (("path", str(root / name)),)))
    return made


def contents(root) -> dict[str, Counter]:
    found: dict[str, Counter] = {name: Counter() for name in NAMES}
    for name in NAMES:
        for path in (root / name).glob("*.parquet"):
            found[name].update(tuple(row.values()) for row in pq.read_table(path).to_pylist())
    return found


def bag(view) -> Counter:
    return Counter(tuple(map(canonical, row.values())) for row in view.to_arrow().to_pylist())


class Disturbed:
    """A reader that lets something happen before every request of a refresh."""

    def __init__(self, reader, happens) -> None:
        self.reader, self.happens = reader, happens

    def __getattr__(self, name):
        found = getattr(self.reader, name)
        if name not in ("lookup", "scan", "changes"):
            return found

        def disturbed(*given, **named):
            self.happens()
            return found(*given, **named)

        return disturbed


ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("xy")), max_size=4)
WRITES = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1), ROWS), min_size=1, max_size=12)


@settings(max_examples=examples(20))
@given(
    writes=WRITES,
    strategy=st.sampled_from(["auto", *STRATEGIES]),
    turns=st.integers(1, 3),
)
def test_another_view_may_be_refreshed_between_any_two_requests(tmp_path_factory, writes, strategy, turns):
    """Files are written, and the other view brings the sources to new versions, while this one is under way."""
    root = tmp_path_factory.mktemp("case")
    made, coming = catalog(root), list(writes)
    lock = threading.Lock()

    def happens() -> None:
        with lock:
            if coming:
                name, file, rows = coming.pop()
                write(root / name / f"{file}.parquet", rows)
                other.refresh()

    other = made.add_view(TOTALS, "other")
    other.refresh()
    view = made.add_view(FOUR if strategy == "adjacent" else CHAIN, "view", strategy=strategy)
    view.parts.readers = {name: Disturbed(reader, happens) for name, reader in view.parts.readers.items()}
    for _ in range(turns):
        view.refresh()
    coming.clear()
    for one in (view, other):
        one.refresh()
        assert bag(one) == answer(one.view, made.sources, contents(root))
    made.close()


def test_a_recompute_that_is_foreseen_sees_what_came_since_the_last_look(tmp_path):
    """No changes are fetched for it, so nothing else has looked at the files."""
    made = catalog(tmp_path)
    view = made.add_view(CHAIN, "view")
    view.refresh()
    for turn in range(3):
        for name in NAMES:
            write(tmp_path / name / f"{turn}.parquet", [(turn, "x"), (7, "y")])
        if turn == 1:  # from now on nothing is as cheap
            view._chooser.statistics = replace(view._chooser.statistics, recompute=1e-9)
        facts = view.refresh()
        assert turn == 0 or facts["strategy"] == "recompute"
        assert any(facts["changed"]) == (turn < 2)
        assert bag(view) == answer(view.view, made.sources, contents(tmp_path))
    made.close()


def test_views_are_refreshed_and_read_by_several_threads(tmp_path):
    made = catalog(tmp_path)
    sql = {"one": CHAIN, "two": TOTALS, "three": "SELECT v FROM a", "four": CHAIN}
    views = [made.add_view(text, name) for name, text in sql.items()]
    for view in views:
        view.refresh()
    stop = threading.Event()

    def kept_fresh(view) -> int:
        turns = 0
        while not stop.is_set() or not turns:
            view.refresh()
            turns += 1
        return turns

    def read(view) -> int:
        turns = 0
        while not stop.is_set() or not turns:
            view.to_arrow()
            turns += 1
        return turns

    with ThreadPoolExecutor(2 * len(views)) as pool:
        under_way = [pool.submit(work, view) for view in views for work in (kept_fresh, read)]
        for turn in range(60):
            write(tmp_path / NAMES[turn % 3] / f"{turn % 4}.parquet", [(turn % 5, "xyz"[turn % 3]), (1, "x")])
        stop.set()
        assert all(future.result() for future in under_way)
    for view in views:
        view.refresh()
        assert bag(view) == answer(view.view, made.sources, contents(tmp_path))
    made.close()
