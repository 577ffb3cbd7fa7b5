"""Parquet files of results and of rows put aside: found as the manifest names them, and read with their checksums.

They have a checksum in every page; damaged ones are never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import StateError
from penstock.state.manifest import SideFile
from penstock.state.result_files import ResultFile
from penstock.storage.faults import RESTORE, damaged
from penstock.storage.store import Store


def checked(store: Store, file: ResultFile | SideFile) -> str:
    """The path of a file, after checking that it exists with the length in the manifest."""
    path = store.path(file.name)
    try:
        found: int | None = store.size(file.name)
    except (FileNotFoundError, NotADirectoryError):
        found = None
    if found != file.bytes:
        state = "is missing" if found is None else f"has {found} bytes instead of {file.bytes}"
        raise StateError(f"{_kind(path)} {path} {state}; {RESTORE}")
    return path


def read(path: str, **options: Any) -> pa.Table:
    """The rows of such a file; raises StateError if a page of it has changed."""
    with _damage_told(path):
        return pq.read_table(path, page_checksum_verification=True, **options)


def batches(path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same piece by piece."""
    with _damage_told(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        yield from file.iter_batches(columns=list(columns))


def columns(path: str) -> list[str]:
    with _damage_told(path):
        return list(pq.read_schema(path).names)


@contextmanager
def _damage_told(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise StateError(f"{_kind(path)} {path} is missing; {RESTORE}") from None
    except (OSError, ValueError, pa.ArrowException) as error:  # Arrow's error depends on where the damage is
        raise damaged(path, next(iter(str(error).splitlines()), type(error).__name__), kind=_kind(path)) from error


def _kind(path: str) -> str:
    return "file of rows put aside" if "/sides/" in path else "result file"
