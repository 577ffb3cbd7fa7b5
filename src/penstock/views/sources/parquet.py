"""Parquet files as a source: a path, a folder or a pattern. A file is unchanged if its inode, size and times are.

New files add their rows, deleted or rewritten ones remove theirs; their old rows are in the reader's own copy.
Unchanged files are not read.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.columns.types import KNOWN, spark_type
from penstock.errors import RegistrationError, StepError
from penstock.model import Column
from penstock.model.view import Source
from penstock.planner.views.initial_load import Estimate
from penstock.storage.secrets import resolved
from penstock.views.rows.bag import COUNT
from penstock.views.rows.difference import difference
from penstock.views.rows.types import schema_of
from penstock.views.sources.snapshot import STAMPS, Rows, counted

FILE = "_file"
_TRIES = 5  # to read a file that is replaced repeatedly


class ParquetFeed:
    """Looks at the files of one source."""

    hidden = pa.schema([pa.field(FILE, pa.int32())])
    told = False

    def __init__(self, source: Source) -> None:
        self.path = resolved(source.options, f"source {source.name!r}")["path"]
        self.schema = schema_of(source.name, source.columns)

    def look(self, state: dict[str, Any], held: Rows) -> tuple[pa.Table, dict[str, Any]] | None:
        before, trusted = _numbers(state), state.get(STAMPS, {})
        now = stamps_of(self.path)
        gone = [n for n in before if n not in now or trusted.get(n) != now[n]]
        come = [n for n, stamp in now.items() if n not in before or trusted.get(n) != stamp]
        if not gone and not come:
            return None
        following = int(state.get("next", 0))
        kept = {n: number for n, number in before.items() if n not in gone}
        stamps = {n: trusted[n] for n in kept}
        tables = [pa.schema([*self.schema, *self.hidden, pa.field(COUNT, pa.int64())]).empty_table()]
        for name in come:
            # A rewritten file keeps its number, so that unchanged rows cancel out.
            number = before.get(name, following)
            following = max(following, number + 1)
            found = self._read(name)
            if found is not None:
                rows, stamps[name] = found
                tables.append(
                    counted(
                        rows.append_column(self.hidden.field(FILE), pa.repeat(pa.scalar(number, pa.int32()), len(rows)))
                    )
                )
                kept[name] = number
        rows = pa.concat_tables(tables)
        if gone:
            ids = pa.array([before[n] for n in gone], pa.int32())
            rows = difference(held(pa.table({FILE: ids})), rows)
        return rows, {"files": kept, STAMPS: stamps, "next": following}

    def estimate(self) -> Estimate:
        """The number of rows in the files' metadata."""
        return Estimate(float(sum(pq.read_metadata(name).num_rows for name in files_of(self.path))))

    def _read(self, name: str) -> tuple[pa.Table, list[int]] | None:
        """The rows of a file and its stamp, which match; None if it has been deleted by now."""
        for _ in range(_TRIES):
            stamp = _stamp(name)
            if stamp is None:
                return None
            problem = None
            try:
                found = self._content(name)
            except (pa.ArrowInvalid, OSError, ValueError) as error:
                problem = str(error).splitlines()[0]
            if _stamp(name) != stamp:
                continue  # it was replaced, and the rows may be of either file
            if problem is not None:
                raise StepError(f"{name} cannot be read: {problem}")
            return found, stamp
        raise StepError(f"{name} was written while it was read; write files under another name and rename them")

    def _content(self, name: str) -> pa.Table:
        with _opened(name) as file:  # not a data set, which takes longer to set up than reading a small file
            if missing := [column for column in self.schema.names if column not in file.schema_arrow.names]:
                raise ValueError(f"it has no column {missing[0]!r}")
            found = file.read(columns=self.schema.names, use_threads=False).select(self.schema.names)
        return found if found.schema == self.schema else found.cast(self.schema)


def files_of(path: str) -> list[str]:
    """The files of a path, a folder (with all below it) or a pattern, without hidden ones."""
    return list(stamps_of(path))


def stamps_of(path: str) -> dict[str, list[int]]:
    """These files in order, each with its stamp."""
    root = Path(path)
    if root.is_dir():
        return dict(sorted(_below(str(root))))
    if root.is_file():
        named = [str(root)]
    else:
        found = map(Path, glob.glob(path, recursive=True))  # noqa: PTH207
        named = sorted(str(name) for name in found if not name.name.startswith(("_", ".")))
    return {name: stamp for name in named if (stamp := _stamp(name)) is not None}


def _below(folder: str, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[tuple[str, list[int]]]:
    """One pass over a folder: a source may have thousands of files, and every refresh lists it.

    Links are followed, but not back into a folder `above`, by device and inode.
    """
    own = os.stat(folder)  # noqa: PTH116
    if (own.st_dev, own.st_ino) in above:
        return
    above |= {(own.st_dev, own.st_ino)}
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name.startswith(("_", ".")):
                continue
            if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path)):  # noqa: PTH112
                yield from _below(entry.path, above)
            elif entry.name.endswith(".parquet") and (stamp := _stamp(entry.path)) is not None:
                yield entry.path, stamp


def columns_of(path: str) -> tuple[Column, ...]:
    """The columns of the first file, with Spark's types."""
    names = files_of(path)
    if not names:
        raise RegistrationError(f"there is no Parquet file in {path!r}; give the path, or the columns of files to come")
    with _opened(names[0]) as file:
        schema, moments = file.schema_arrow, _moments(file)
    columns = []
    for field in schema:
        known = "timestamp" if field.name in moments else spark_type(field.type)
        if known is None:
            msg = (
                f"column {field.name!r} of {names[0]} has type {field.type}, which views do not hold; give the "
                f"source's columns, of types: {KNOWN}"
            )
            raise RegistrationError(msg)
        columns.append(Column(field.name, known))
    return tuple(columns)


def _opened(name: str) -> pq.ParquetFile:
    """A file whose times are read in Spark's microseconds: nanoseconds end in 2262."""
    return pq.ParquetFile(name, coerce_int96_timestamp_unit="us")


def _moments(file: pq.ParquetFile) -> set[str]:
    """The INT96 columns, which hold times in UTC without saying so."""
    columns = (file.schema.column(k) for k in range(len(file.schema)))
    return {column.path for column in columns if column.physical_type == "INT96"}


def _stamp(name: str) -> list[int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116  (a path object for every file costs more than the call)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    # A file that replaced another may have its size and modification time, if both were copied or written quickly.
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns]


def _numbers(state: dict[str, Any]) -> dict[str, int]:
    """The number of each known file; states of an older form have shorter stamps, which are not trusted."""
    return {n: entry[-1] if isinstance(entry, list) else entry for n, entry in state.get("files", {}).items()}
