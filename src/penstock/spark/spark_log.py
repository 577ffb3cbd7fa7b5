"""Checks Spark's own log, from which its query continues, before Spark reads it, since Spark's errors name no file.

It checks what Spark reads at a start: its last batches, and the entries of file sources since their last compaction.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from penstock.errors import StateError
from penstock.spark.offset_log import CHECKPOINT, OffsetLog
from penstock.storage.store import Store

REMEDY = (
    "Restore manifest/ and checkpoint/ from the same backup, or start with a new state directory and replay the sources"
)
_DAMAGE = re.compile(
    r"batch \S+ doesn't exist|[Ii]ncomplete log file|[Ll]og file was malformed|MALFORMED_LOG_FILE|[Ff]ailed "
    r"to read log file|"
    r"MISSING_\w*BATCH|INVALID_LOG|UNRECOGNIZED_\w*LOG"
)


def check_log(store: Store) -> None:
    """Refuse a log that was cut, damaged or partly lost."""
    offsets, commits = (_numbers(store, f"{CHECKPOINT}/{log}") for log in ("offsets", "commits"))
    if not offsets and not commits:
        return
    if "metadata" not in store.names(CHECKPOINT):
        _refuse(store, "metadata", "is missing")
    _check(store, "metadata", ("{",))
    last, done = (numbers[-1] if numbers else -1 for numbers in (offsets, commits))
    for batch in sorted({done, max(last, 0), max(last - 1, 0)} - {-1}):
        if batch not in offsets:
            _refuse(store, f"offsets/{batch}", "is missing")
    for batch in offsets[-2:]:
        _check(store, f"offsets/{batch}", ("v", "{"))
    if commits:
        _check(store, f"commits/{done}", ("v", "{"))
    for source, offset in OffsetLog(store).last_offsets(last).items():
        _check_source(store, source, offset)


def of_log(text: str) -> bool:
    """Whether Spark's message is about its log."""
    return _DAMAGE.search(text) is not None


def _check_source(store: Store, source: str, last: int) -> None:
    """The entries of a file source since the last one that contains all before it."""
    folder = f"sources/{source}"
    names = set(store.names(f"{CHECKPOINT}/{folder}"))
    for number in range(last, -1, -1):
        whole = f"{number}.compact" in names
        if not whole and str(number) not in names:
            _refuse(store, f"{folder}/{number}", "is missing")
        _check(store, f"{folder}/{number}.compact" if whole else f"{folder}/{number}", ("v",))
        if whole:
            return


def _check(store: Store, name: str, begins: tuple[str, ...]) -> None:
    """Check that the first lines begin so, and that the last one is whole."""
    try:
        lines = store.read(f"{CHECKPOINT}/{name}").decode().splitlines()
    except UnicodeDecodeError:
        _refuse(store, name, "is damaged")
    if len(lines) < len(begins) or any(line[:1] != b for line, b in zip(lines, begins, strict=False)):
        _refuse(store, name, "is cut short or damaged")
    if not all(_is_whole(line) for line in (*lines[:2], lines[-1])):
        _refuse(store, name, "is cut short or damaged")


def _is_whole(line: str) -> bool:
    """Whether it is a version or JSON, with or without the name of its source; '-' is no offset."""
    if re.fullmatch(r"v\d+", line):
        return True
    return any(text == "-" or _is_json(text) for text in (line, line.partition(":")[2]))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _numbers(store: Store, folder: str) -> list[int]:
    return sorted(int(n) for n in store.names(folder) if n.isdecimal())


def _refuse(store: Store, name: str, why: str) -> NoReturn:
    raise StateError(f"{store.label(CHECKPOINT)}/{name}, of Spark's own log, {why}. {REMEDY}")
