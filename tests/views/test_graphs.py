"""Random views over Parquet files: the answers of readers keep a view equal to its definition, in every strategy."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.view import Source
from penstock.reference.view import joined
from penstock.storage.local import LocalStore
from penstock.views.refresh.maintain import compute, graph_of, maintain
from penstock.views.rows.types import schema_of
from penstock.views.sources.parquet import ParquetFeed
from penstock.views.sources.snapshot import SnapshotReader
from tests.effort import examples

from .graphs import ROWS, views
from .memory import bag
from .test_maintain import PLANS, Inline

FILES = 3


class Folder:
    """A source in files, and what they hold at each position of its reader."""

    def __init__(self, source, root, rng, rows):
        self.root, self.rng, self.rows = root / source.name, rng, rows
        self.root.mkdir()
        self.source = Source(source.name, source.columns, "parquet", (("path", str(self.root)),))
        self.held = {file: [] for file in range(FILES)}
        self.at = {}
        self.reader = SnapshotReader(
            self.source, LocalStore(str(root / "state"), durable=False), source.name, ParquetFeed(self.source)
        )
        self.reader.position = self._position(self.reader.position)

    def change(self):
        """Some of the files are rewritten, or deleted."""
        for file in self.rng.sample(range(FILES), self.rng.randint(0, 2)):
            kept = [row for row in self.held[file] if self.rng.random() < 0.7]
            self.held[file] = kept + self.rng.choices(self.rows, k=self.rng.randint(0, 2))
            path, aside = self.root / f"{file}.parquet", self.root / f".{file}"
            if not self.held[file]:
                path.unlink(missing_ok=True)
                continue
            schema = schema_of("s", self.source.columns)
            columns = [pa.array([row[k] for row in self.held[file]], f.type) for k, f in enumerate(schema)]
            pq.write_table(pa.table(columns, schema=schema), aside)
            aside.rename(path)

    def _position(self, look):
        def looked():
            self.change()  # it may move on before every look
            found = look()
            self.at[found] = Counter(row for rows in self.held.values() for row in rows)
            return found

        return looked


def check(root, made, rows, seed, names):
    view, sources = made
    rng = Random(seed)
    folders = {name: Folder(source, root, rng, rows) for name, source in sources.items()}
    readers = {name: folder.reader for name, folder in folders.items()}
    for folder in folders.values():
        folder.change()

    def expected(positions):
        found = joined(view, sources, {name: folder.at[positions[name]] for name, folder in folders.items()})
        return Counter({row: times for row, times in found.items() if times})

    done = compute(view, readers, Inline())
    held, positions = bag(done.rows), done.positions
    assert held == expected(positions)
    for name in names:
        plan = PLANS[name](graph_of(view))
        done = maintain(view, readers, positions, lambda _, plan=plan: plan, Inline())
        change, positions = bag(done.rows), done.positions
        held = change if done.whole else Counter({row: held[row] + change[row] for row in {**held, **change}})
        held = Counter({row: times for row, times in held.items() if times})
        assert held == expected(positions), name


@settings(deadline=None, max_examples=examples(12))
@given(views(4), st.lists(ROWS, min_size=3, max_size=6), st.integers(0, 2**32), st.permutations(sorted(PLANS)))
def test_a_view_over_files_equals_its_definition_after_every_refresh(tmp_path_factory, made, rows, seed, names):
    check(tmp_path_factory.mktemp("case"), made, rows, seed, names[:3])


@pytest.mark.long
@settings(deadline=None, max_examples=examples(150))
@given(views(5), st.lists(ROWS, min_size=3, max_size=6), st.integers(0, 2**32), st.permutations(sorted(PLANS)))
def test_so_it_does_in_many_cases(tmp_path_factory, made, rows, seed, names):
    check(tmp_path_factory.mktemp("case"), made, rows, seed, names)
