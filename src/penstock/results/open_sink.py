"""Opens the sinks that need no Spark: folders and functions."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.model import Sink
from penstock.results.folder import FolderSink
from penstock.results.function import FunctionSink
from penstock.results.sink import Into, OpenSink, Tables
from penstock.storage.store import Store


def open_sink(into: Into, tables: Tables, store: Store, owner: str) -> OpenSink:
    """`store` has the result files; `owner` is the id of the state directory."""
    if isinstance(into, Sink):
        raise PenstockError(f"sink {into} is written by Spark, and there is none; use a folder or a function")
    return FolderSink(into, tables, store, owner) if isinstance(into, str) else FunctionSink(into, tables)
