"""Parquet files of a store, of results and rejected rows: with a checksum in every page, never read when damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import StateError
from penstock.storage.faults import RESTORE, damaged
from penstock.storage.store import Store

THREADS_BYTES = 1 << 20  # the least size of a file whose columns are read by several threads

# Spark's options to verify the checksums too.
VERIFIED = {"parquet.page.verify-checksum.enabled": "true"}


class Listed(Protocol):
    """A file as a manifest names it."""

    @property
    def name(self) -> str: ...

    @property
    def bytes(self) -> int: ...


def write(store: Store, name: str, table: pa.Table, **options: Any) -> int:
    """Write a new file; returns its length in bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True, **options)
    data = sink.getvalue()
    store.write(name, data)
    return int(data.size)


def checked(store: Store, file: Listed) -> str:
    """The name of a file, after checking that it exists with the length in the manifest."""
    try:
        found: int | None = store.size(file.name)
    except (FileNotFoundError, NotADirectoryError):
        found = None
    if found != file.bytes:
        state = "is missing" if found is None else f"has {found} bytes instead of {file.bytes}"
        raise StateError(f"{_kind(file.name)} {store.label(file.name)} {state}; {RESTORE}")
    return file.name


def paths(store: Store, files: Iterable[Listed]) -> list[str]:
    """The paths of existing files for Spark."""
    return [store.path(checked(store, file)) for file in files]


def read(store: Store, name: str) -> pa.Table:
    """The rows of such a file; raises StateError if a page of it has changed."""
    with _opened(store, name) as file:
        return pq.ParquetFile(file, page_checksum_verification=True).read(use_threads=_pays(file))


def read_some(store: Store, name: str, columns: Sequence[str], filters: pc.Expression) -> pa.Table:
    """The same of some columns and rows."""
    with _opened(store, name) as file:
        return pq.read_table(file, columns=list(columns), filters=filters, page_checksum_verification=True)


def batches(store: Store, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same piece by piece."""
    with _opened(store, name) as file:
        opened = pq.ParquetFile(file, page_checksum_verification=True)
        yield from opened.iter_batches(columns=list(columns), use_threads=_pays(file))


def columns(store: Store, name: str) -> list[str]:
    with _opened(store, name) as file:
        return list(pq.read_schema(file).names)


def metadata(store: Store, name: str) -> pq.FileMetaData:
    """The metadata of a file."""
    with _opened(store, name) as file:
        return pq.read_metadata(file)


def _pays(file: pa.BufferReader) -> bool:
    """Whether threads cost less than they save."""
    return bool(file.size() >= THREADS_BYTES)


@contextmanager
def _opened(store: Store, name: str) -> Iterator[pa.BufferReader]:
    """A file, mapped; errors name it."""
    kind, label = _kind(name), store.label(name)
    try:
        yield pa.BufferReader(store.map(name))
    except FileNotFoundError:
        raise StateError(f"{kind} {label} is missing; {RESTORE}") from None
    except (OSError, ValueError, pa.ArrowException) as error:  # Arrow's error depends on where the damage is
        raise damaged(label, next(iter(str(error).splitlines()), type(error).__name__), kind=kind) from error


def _kind(name: str) -> str:
    return "file of rows put aside" if name.startswith("sides/") else "result file"
