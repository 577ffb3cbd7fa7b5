"""Several engines over one state directory, and what one catalog refuses or takes care of; sources are files."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError, StateError, StepError
from penstock.model import Column
from penstock.model.view import Source
from penstock.storage.faulty import Died, Faults, FaultyStore
from penstock.storage.local import LocalStore
from penstock.storage.memory import MemoryStore
from penstock.storage.seal import seal, unseal
from penstock.views.catalog import ViewCatalog
from penstock.views.sources import parquet
from tests.effort import examples
from tests.views.memory import Frame
from tests.views.test_parquet import write

LINES = (Column("k", "bigint"), Column("v", "string"))
ALL = "SELECT l.k, l.v FROM lines l"
PAIRS = "SELECT a.v AS one, b.v AS other FROM lines a, lines b WHERE a.k = b.k"


def catalog(root, store=None) -> ViewCatalog:
    (root / "lines").mkdir(exist_ok=True)
    made = ViewCatalog(None, store or LocalStore(str(root / "state"), durable=False), None)
    made.add_source(Source("lines", LINES, "parquet", (("path", str(root / "lines")),)))
    return made


def rows(view) -> list:
    return sorted(tuple(row.values()) for row in view.to_arrow().to_pylist())


def test_a_full_refresh_reads_also_files_that_seem_not_to_have_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_stamp", lambda name: [0])
    made = catalog(tmp_path)
    write(tmp_path / "lines" / "a.parquet", [(1, "a")])
    view = made.add_view(ALL, "v")
    view.refresh()
    write(tmp_path / "lines" / "a.parquet", [(2, "b")])
    view.refresh()
    assert rows(view) == [(1, "a")]
    view.refresh(full=True)
    assert rows(view) == [(2, "b")]
    made.close()


@pytest.mark.parametrize("sql", [ALL, PAIRS])
def test_a_view_that_somebody_else_dropped_and_declared_anew_is_not_written_to(tmp_path, sql):
    one, other = catalog(tmp_path), catalog(tmp_path)
    write(tmp_path / "lines" / "a.parquet", [(1, "a")])
    stale = one.add_view(ALL, "v")
    stale.refresh()
    other.drop_view("v")
    write(tmp_path / "lines" / "a.parquet", [(1, "b")])
    with pytest.raises(StateError, match="was dropped by somebody else; declare it again"):
        stale.refresh()
    assert not (tmp_path / "state/views/v").exists()
    fresh = other.add_view(sql, "v")
    fresh.refresh()
    assert fresh.store.newest.number == 1
    expected = rows(fresh)
    write(tmp_path / "lines" / "b.parquet", [(2, "b")])
    for _ in range(2):
        with pytest.raises(StateError, match="was dropped by somebody else; declare it again"):
            stale.refresh()
    stale.store.slices.keep(())  # as if it had read nothing before
    with pytest.raises(StateError, match="was dropped by somebody else; declare it again"):
        stale.to_arrow()
    assert rows(catalog(tmp_path).add_view(sql, "v")) == expected
    again = one.add_view(sql, "v")
    assert again is not stale
    assert rows(again) == expected
    again.refresh()
    assert len(rows(again)) == 2
    one.close()
    other.close()


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_drop_that_is_interrupted_leaves_the_view_or_its_name(tmp_path, power_cut):
    """The process dies at each change of a drop: then the view is unchanged, or another one can be declared."""
    (tmp_path / "lines").mkdir()
    write(tmp_path / "lines" / "a.parquet", [(1, "a"), (1, "b")])
    dies_at, whole = 0, False
    while not whole:
        dies_at += 1
        store = FaultyStore(MemoryStore(), Random(dies_at))
        made = catalog(tmp_path, store)
        made.add_view(PAIRS, "v").refresh()
        made.views["v"].refresh(full=True)
        made.close()
        store = store.restarted(Faults(dies_at=dies_at))
        try:
            catalog(tmp_path, store).drop_view("v")
            whole = True
        except Died:
            assert store.dead
        store = store.restarted(power_cut=power_cut)
        again = catalog(tmp_path, store)
        if store.exists("views/v/definition"):
            with pytest.raises(RegistrationError, match="declared with another SELECT"):
                again.add_view(ALL, "v")
            assert len(rows(again.add_view(PAIRS, "v"))) == 4
            again.drop_view("v")
        view = again.add_view(ALL, "v")
        assert view.store.newest.number == 0
        view.refresh()
        assert rows(view) == [(1, "a"), (1, "b")]
        again.drop_view("v")
        assert [name for name in store.inner.files() if name.startswith("views/")] == []
        again.close()
    assert dies_at > 3


def test_a_view_declared_before_there_were_ids_goes_on(tmp_path):
    made = catalog(tmp_path)
    made.add_view(ALL, "v").refresh()
    made.close()
    definition = tmp_path / "state/views/v/definition"
    body = unseal(definition.read_bytes(), "")
    del body["id"]
    definition.write_bytes(seal(body))
    write(tmp_path / "lines" / "a.parquet", [(1, "a")])
    again = catalog(tmp_path)
    view = again.add_view(ALL, "v")
    view.refresh()
    assert rows(view) == [(1, "a")]
    again.drop_view("v")
    assert list((tmp_path / "state/views").iterdir()) == []
    again.close()


ACTIONS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.lists(st.integers(0, 2), max_size=3)), max_size=8)


@settings(max_examples=examples(15))
@given(actions=ACTIONS)
def test_two_engines_look_at_one_source_in_turn(tmp_path_factory, actions):
    """Each keeps a view of its own; both share the copy of the source, and neither is instructed to do anything."""
    root = tmp_path_factory.mktemp("case")
    made = [catalog(root), catalog(root)]
    views = [made[0].add_view(PAIRS, "one", strategy="batch"), made[1].add_view(ALL, "other", strategy="batch")]
    files: dict[int, list[int]] = {}
    for engine, number, keys in actions:
        files[number] = keys
        write(root / "lines" / f"{number}.parquet", [(k, f"{number}") for k in keys])
        views[engine].refresh()
        now = Counter((k, f"{n}") for n, found in files.items() for k in found)
        found = Counter(rows(views[engine]))
        if engine:
            assert found == now
        else:
            pairs = Counter()
            for (k, v), n in now.items():
                for (other, w), m in now.items():
                    pairs[v, w] += n * m * (k == other)
            assert found == +pairs
    for catalogs in made:
        catalogs.close()


def test_a_look_in_between_of_another_engine_is_taken_in(tmp_path, monkeypatch):
    """The other one looks after this one has compared, and before it has written; and deletes files of this one."""
    one, other = catalog(tmp_path), catalog(tmp_path)
    write(tmp_path / "lines" / "a.parquet", [(1, "a")])
    view = one.add_view(ALL, "v")
    view.refresh()
    look, feed, done = parquet.ParquetFeed.look, one.reader("lines").feed, []

    def late(self, state, held):
        found = look(self, state, held)
        if self is feed and not done:
            done.append(1)
            for k in range(6):
                write(tmp_path / "lines" / f"{k}.parquet", [(k, "x")])
                other.reader("lines").settle(other.reader("lines").position() - 1)
        return found

    monkeypatch.setattr(parquet.ParquetFeed, "look", late)
    write(tmp_path / "lines" / "b.parquet", [(2, "b")])
    with pytest.warns(UserWarning, match="no longer kept"):
        view.refresh()
    assert done
    assert rows(view) == [(0, "x"), (1, "a"), (1, "x"), (2, "b"), (2, "x"), (3, "x"), (4, "x"), (5, "x")]
    one.close()
    other.close()


def test_a_copy_that_was_filled_anew_has_other_positions(tmp_path):
    """A view whose mark is of an earlier copy of its source is recomputed, not updated by numbers of another copy."""
    made = catalog(tmp_path)
    for k in range(3):
        write(tmp_path / "lines" / f"{k}.parquet", [(k, "a")])
        made.add_view(ALL, "v").refresh()
    made.close()
    again = catalog(tmp_path)
    again.drop_source("lines")
    write(tmp_path / "lines" / "0.parquet", [(9, "b")])
    again.add_source(Source("lines", LINES, "parquet", (("path", str(tmp_path / "lines")),)))
    view = again.add_view(ALL, "v")
    with pytest.warns(UserWarning, match="'lines' was given up and filled anew; the view was recomputed"):
        view.refresh()
    assert rows(view) == [(1, "a"), (2, "a"), (9, "b")]
    again.close()


@pytest.mark.parametrize("name", ["_count", "_Count", "_file"])
def test_columns_named_like_those_of_views_are_refused(tmp_path, name):
    made = catalog(tmp_path)
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({"k": [1], name: [2]}), tmp_path / "other" / "a.parquet")
    at = (("path", str(tmp_path / "other")),)
    with pytest.raises(RegistrationError, match=f"'other' has a column '{name}'.*rename it, or declare"):
        made.add_source(Source("other", (), "parquet", at))
    made.add_source(Source("other", (Column("k", "bigint"),), "parquet", at))
    view = made.add_view("SELECT k FROM other", "v")
    view.refresh()
    assert rows(view) == [(1,)]
    made.close()


def test_a_dataframe_that_is_declared_again_is_the_one_that_is_read(tmp_path):
    made = ViewCatalog(None, LocalStore(str(tmp_path), durable=False), None)
    source = Source("s", (Column("k", "bigint"),), "dataframe")
    made.add_source(source, lambda: Frame(pa.table({"k": [1]})))
    view = made.add_view("SELECT k FROM s", "v")
    view.refresh()
    made.add_source(source, lambda: Frame(pa.table({"k": [1, 2]})))
    other = Source("s", (Column("k", "int"),), "dataframe")
    with pytest.raises(RegistrationError, match="declared twice and differently"):
        made.add_source(other, lambda: Frame(pa.table({"k": [3]})))
    view.refresh()
    assert rows(view) == [(1,), (2,)]
    made.close()


def test_status_says_whether_a_view_is_kept_fresh_and_why_its_last_refresh_failed(tmp_path):
    made = catalog(tmp_path)
    view = made.add_view(ALL, "v").start("1 hour")
    assert view.status()["every"] == 3600
    view.stop()
    assert view.status()["every"] is None
    (tmp_path / "lines" / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(StepError, match="cannot be read"):
        view.refresh()
    assert "cannot be read" in view.status()["error"]
    write(tmp_path / "lines" / "a.parquet", [(1, "a")])
    view.refresh()
    assert view.status()["error"] is None
    made.close()
