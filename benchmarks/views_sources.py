"""Sources for measuring views: relations as Arrow tables (the truth), and the same in PostgreSQL or in Parquet files.

Changes are made to both; the expected content of a view follows from the truth alone, by DuckDB.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from penstock.columns.types import spark_type
from penstock.model import Column, Source

FILES = 50  # of a relation, when first written


@dataclass
class Relation:
    """Rows, their key columns, their indexed columns, and the file of each row."""

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
        """Remove rows by number, add others in a new file; returns (removed rows, changed files)."""
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

        from penstock.views.postgres.pool import Pool
        from penstock.views.postgres.source import PostgresReader

        self.relations = relations
        self.user = dbapi.connect(url, autocommit=True)
        self.pool = Pool(url)
        with self.user.cursor() as cursor:
            for name, relation in relations.items():
                cursor.execute(f"DROP TABLE IF EXISTS {name} CASCADE")
                cursor.adbc_ingest(name, relation.rows, mode="create")
                for column in relation.columns:  # the driver drops precision and scale
                    if column.type.startswith("decimal"):
                        digits = column.type.replace("decimal", "numeric")
                        cursor.execute(f"ALTER TABLE {name} ALTER COLUMN {column.name} TYPE {digits}")
                for column in dict.fromkeys((relation.key[0], *relation.indexed)):
                    if column not in relation.rows.column_names:
                        continue
                    cursor.execute(f"CREATE INDEX ON {name} ({column})")
                cursor.execute(f"ANALYZE {name}")
        self.readers: dict[str, Any] = {}
        for name, relation in relations.items():
            options = (("table", name),)
            source = Source(name, relation.columns, "postgres", options, changes="trigger")
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
        """The system's own way to compute a view. The driver returns decimals as text."""
        found = self.pool.fetch(sql)
        for place, column in enumerate(found.columns):
            if isinstance(column.type, pa.BaseExtensionType):
                plain = pa.chunked_array([c.storage for c in column.chunks], column.type.storage_type)
                found = found.set_column(place, found.field(place).name, plain)
        return found

    def close(self) -> None:
        for reader in self.readers.values():
            reader.drop_capture()
        self.pool.close()
        self.user.close()


class Files:
    """The relations as folders of Parquet files, which are listed and compared."""

    name = "parquet"

    def __init__(self, relations: Mapping[str, Relation], folder: Path) -> None:
        from penstock.storage.local import LocalStore
        from penstock.views.sources.parquet import ParquetFeed
        from penstock.views.sources.snapshot import SnapshotReader

        self.relations, self.folder = relations, folder
        self.readers: dict[str, Any] = {}
        for name, relation in relations.items():
            (folder / name).mkdir(parents=True)
            for file in range(FILES):
                self._write(name, file)
            source = Source(name, relation.columns, "parquet", (("path", str(folder / name)),))
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
    """A reader behind a slow link: every request takes longer, and every row of an answer."""

    def __init__(self, reader: Any, seconds: float, each_row: float = 0.0) -> None:
        self.reader, self.seconds, self.each_row = reader, seconds, each_row

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.reader, name)
        if name not in {"position", "changes", "lookup", "scan"}:
            return found

        def slow(*given: Any, **named: Any) -> Any:
            answer = found(*given, **named)
            rows = len(answer.rows) if name in {"lookup", "scan"} else 0
            time.sleep(self.seconds + self.each_row * rows)
            return answer

        return slow


def fingerprint(rows: pa.Table, names: Sequence[str]) -> list[str]:
    """The number of rows and an order-independent checksum; rows may have counts."""
    count = "_count" if "_count" in rows.column_names else "1"
    sql = f"SELECT sum({count}), sum({count} * (hash({', '.join(names)}) % 1000000007)::HUGEINT) FROM given"
    base = duckdb.connect()
    base.register("given", rows)
    return [str(value) for value in base.execute(sql).fetchone()]


def expected(relations: Mapping[str, Relation], sql: str) -> pa.Table:
    """The expected content of a view, from the truth."""
    base = duckdb.connect()
    for name, relation in relations.items():
        base.register(name, relation.rows)
    return base.sql(sql).to_arrow_table()


def links(source: Path, target: Path) -> None:
    """A copy of a folder that shares its files, which are never written again."""
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True)
        for name in names:
            os.link(Path(folder) / name, there / name)


# -- the workloads ----------------------------------------------------------------------------------------------------


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


def tree_of(
    rows: int, draw: np.random.Generator, first: int, columns: Sequence[str], coarse: frozenset[str]
) -> pa.Table:
    """Rows that are equal in all columns or in none; in a `coarse` one, fifty times as many are equal."""
    group = draw.integers(0, rows, rows) if first else draw.permutation(rows)
    values = {name: group // 50 if name in coarse else group for name in columns}
    return pa.table({"id": np.arange(first, first + rows), **values})


class Cyclic:
    """A view over relations joined by any edges (numbered from 0), join ratio one, or fifty on `coarse` edges."""

    def __init__(self, edges: Sequence[tuple[int, int]], rows: int, coarse: Sequence[int] = (), seed: int = 1) -> None:
        self.edges, self.rows, self.draw = list(edges), rows, np.random.default_rng(seed)
        self.coarse = frozenset(f"e{n}" for n in coarse)
        self.nodes = 1 + max(max(edge) for edge in self.edges)
        self.columns = [[f"e{n}" for n, edge in enumerate(self.edges) if node in edge] for node in range(self.nodes)]
        self.next = [rows] * self.nodes
        self.relations = {
            f"r{node + 1}": Relation(tree_of(rows, self.draw, 0, own, self.coarse), ("id",), tuple(own))
            for node, own in enumerate(self.columns)
        }
        self.deltas: Sequence[int] | None = None  # rows to change in each relation, instead of a share

    @property
    def sql(self) -> str:
        items = ", ".join(f"{name}.id AS {name}_id" for name in self.relations)
        tied = " AND ".join(f"r{a + 1}.e{n} = r{b + 1}.e{n}" for n, (a, b) in enumerate(self.edges))
        return f"SELECT {items} FROM {', '.join(self.relations)} WHERE {tied}"

    def change(self, system: Postgres | Files, share: float, changed: int | None = None) -> int:
        """Replace rows by new ones with the same or other keys."""
        total = 0
        for node, (name, relation) in list(enumerate(self.relations.items()))[: changed or self.nodes]:
            half = max(1, (self.deltas[node] if self.deltas else round(share * self.rows)) // 2)
            gone = np.sort(self.draw.choice(len(relation.rows), half, replace=False))
            group = self.draw.integers(0, self.rows, half)
            values = {c: group // 50 if c in self.coarse else group for c in self.columns[node]}
            come = pa.table({"id": np.arange(self.next[node], self.next[node] + half), **values})
            self.next[node] += half
            system.apply(name, gone, come.cast(relation.rows.schema))
            total += 2 * half
        return total


# -- TPC-H ------------------------------------------------------------------------------------------------------------

TPCH = {
    "q3": """SELECT l_orderkey, l_linenumber, l_extendedprice, l_discount, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
          AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'""",
    "q5": """SELECT n_name, l_orderkey, l_linenumber, l_extendedprice, l_discount
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
          AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'""",
    "q9": """SELECT n_name, o_orderdate, l_orderkey, l_linenumber, l_extendedprice, l_discount, ps_supplycost,
               l_quantity
        FROM part, supplier, lineitem, partsupp, orders, nation
        WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
          AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_size < 5""",
}
KEYS = {
    "customer": ("c_custkey",), "orders": ("o_orderkey",), "lineitem": ("l_orderkey", "l_linenumber"),
    "supplier": ("s_suppkey",),
    "nation": ("n_nationkey",), "region": ("r_regionkey",), "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
}  # fmt: skip
INDEXED = {
    "customer": ("c_nationkey",), "orders": ("o_custkey",), "lineitem": ("l_suppkey", "l_partkey"),
    "supplier": ("s_nationkey",),
    "nation": ("n_regionkey",), "partsupp": ("ps_suppkey",),
}  # fmt: skip


class Tpch:
    """One view over TPC-H data; changes are new and old orders with their lines, as in its refresh functions."""

    def __init__(self, query: str, folder: Path, seed: int = 1) -> None:
        self.sql, self.draw = TPCH[query], np.random.default_rng(seed)
        names = [name for name in KEYS if re.search(rf"\b{name}\b", self.sql)]
        tables = {name: self._read(folder / f"{name}.parquet") for name in names}
        orders = tables["orders"]["o_orderkey"].to_numpy()
        self.held = self.draw.permutation(orders)[: len(orders) // 5]  # orders not yet added, or removed
        self.kept = {name: tables[name] for name in ("orders", "lineitem")}
        self.relations = {}
        for name, table in tables.items():
            rows = (
                table.filter(pa.array(~np.isin(self._orders(name, table), self.held))) if name in self.kept else table
            )
            self.relations[name] = Relation(rows, KEYS[name], INDEXED.get(name, ()))

    def _read(self, path: Path) -> pa.Table:
        """The columns that the view reads, with plain types."""
        named = set(re.findall(r"\w+", self.sql)) | {key for own in KEYS.values() for key in own}
        table = pq.read_table(path, columns=[c for c in pq.read_schema(path).names if c in named])
        plain = [pa.string() if pa.types.is_string_view(f.type) else f.type for f in table.schema]
        return table.cast(pa.schema([(f.name, kind) for f, kind in zip(table.schema, plain, strict=True)]))

    @staticmethod
    def _orders(name: str, table: pa.Table) -> np.ndarray:
        return table["o_orderkey" if name == "orders" else "l_orderkey"].to_numpy()

    def change(self, system: Postgres | Files, share: float, changed: int | None = None) -> int:
        """A share of the orders goes or comes, half and half."""
        del changed
        here = self._orders("orders", self.relations["orders"].rows)
        half = max(1, min(round(share * len(here) / 2), len(self.held)))
        start = int(self.draw.integers(0, len(here) - half))
        gone, come = here[start : start + half], self.held[:half]
        self.held = np.concatenate([self.held[half:], gone])
        total = 0
        for name, kept in self.kept.items():
            old = np.flatnonzero(np.isin(self._orders(name, self.relations[name].rows), gone))
            new = kept.filter(pa.array(np.isin(self._orders(name, kept), come)))
            system.apply(name, old, new)
            total += len(old) + len(new)
        return total


def tpch_files(scale: float) -> Path:
    """The tables made by `tpchgen-cli`, stored among the temporary files."""

    def make(folder: Path) -> None:
        program = Path(sys.executable).parent / "tpchgen-cli"
        subprocess.run([program, "parquet", "-s", str(scale), "-o", str(folder)], check=True, capture_output=True)

    return harness.cached("tpch", {"scale": scale}, make)
