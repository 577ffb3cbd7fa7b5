"""Parquet files as a source: a path, a folder or a pattern. Files are told apart by name, size and time of change.

Files that came add their rows, files that went (or were written anew) take theirs away; what they held is in the reader's own
copy. Nothing is read of a file that has not changed.
"""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import RegistrationError, StepError
from penstock.model import Column
from penstock.model.view import Source
from penstock.views.bag import negated, total
from penstock.views.snapshot import Rows, counted
from penstock.views.source import COUNT
from penstock.views.types import KNOWN, schema_of, spark_type

FILE = "_file"
_TRIES = 5  # to read a file that is replaced again and again


class ParquetFeed:
    """Looks at the files of one source."""

    hidden = pa.schema([pa.field(FILE, pa.int32())])

    def __init__(self, source: Source) -> None:
        self.path = dict(source.options)["path"]
        self.schema = schema_of(source.name, source.columns)

    def look(self, state: dict[str, Any], held: Rows) -> tuple[pa.Table, dict[str, Any]] | None:
        before: dict[str, list[int]] = state.get("files", {})
        now = {name: stamp for name in files_of(self.path) if (stamp := _stamp(name)) is not None}
        gone = [n for n, (*stamp, _) in before.items() if now.get(n) != stamp]
        come = [n for n, stamp in now.items() if before.get(n, [])[:2] != stamp]
        if not gone and not come:
            return None
        following = int(state.get("next", 0))
        kept = {n: entry for n, entry in before.items() if n not in gone}
        tables = [pa.schema([*self.schema, *self.hidden, pa.field(COUNT, pa.int64())]).empty_table()]
        for name in come:
            # A file that was written anew keeps its number, so that rows which stayed cancel out.
            number = before[name][2] if name in before else following
            following = max(following, number + 1)
            found = self._read(name)
            if found is not None:
                rows, stamp = found
                tables.append(
                    counted(
                        rows.append_column(self.hidden.field(FILE), pa.repeat(pa.scalar(number, pa.int32()), len(rows)))
                    )
                )
                kept[name] = [*stamp, number]
        if gone:
            ids = pa.array([before[n][2] for n in gone], pa.int32())
            tables.append(negated(held(pa.table({FILE: ids}))))
        return (total(tables) if gone else pa.concat_tables(tables)), {"files": kept, "next": following}

    def _read(self, name: str) -> tuple[pa.Table, list[int]] | None:
        """The rows of a file and its stamp, which belong together; None if it has gone by now."""
        for _ in range(_TRIES):
            stamp = _stamp(name)
            if stamp is None:
                return None
            problem = None
            try:
                found = pq.read_table(name, columns=self.schema.names, partitioning=None).cast(self.schema)
            except (pa.ArrowInvalid, pa.ArrowKeyError, OSError, ValueError) as error:
                problem = str(error).splitlines()[0]
            if _stamp(name) != stamp:
                continue  # another file has taken its place, and what was read may be either
            if problem is not None:
                raise StepError(f"{name} cannot be read: {problem}")
            return found, stamp
        raise StepError(f"{name} was written while it was read; write files under another name and rename them")


def files_of(path: str) -> list[str]:
    """The files that a path, a folder (with all below it) or a pattern names; hidden ones are not looked at."""
    root = Path(path)
    if root.is_file():
        return [str(root)]
    found = root.rglob("*.parquet") if root.is_dir() else (Path(n) for n in glob.glob(path, recursive=True))  # noqa: PTH207
    shown = (p for p in found if p.is_file() and not any(part.startswith(("_", ".")) for part in _below(p, root)))
    return sorted(str(p) for p in shown)


def columns_of(path: str) -> tuple[Column, ...]:
    """The columns of the first file, with Spark's types."""
    names = files_of(path)
    if not names:
        raise RegistrationError(f"there is no Parquet file in {path!r}; give the path, or the columns of files to come")
    columns = []
    for field in pq.read_schema(names[0]):
        known = spark_type(field.type)
        if known is None:
            msg = f"column {field.name!r} of {names[0]} has type {field.type}, which views do not hold; give the source's columns, of types: {KNOWN}"
            raise RegistrationError(msg)
        columns.append(Column(field.name, known))
    return tuple(columns)


def _stamp(name: str) -> list[int] | None:
    try:
        found = Path(name).stat()
    except FileNotFoundError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _below(path: Path, root: Path) -> tuple[str, ...]:
    return path.relative_to(root).parts if root.is_dir() else (path.name,)
