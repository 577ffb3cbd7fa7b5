"""Which registered queries get files of their own: those with a folder as sink, shown as they were found."""

from __future__ import annotations

from penstock.catalog.check_sink import CALLABLE
from penstock.state.registry import QueryRecord

STEP = "_step"


def listed_of(record: QueryRecord) -> tuple[tuple[str, str], ...]:
    """Names and types of the select list; nothing if more than that must be stored.

    Rows that expire, or come in order, need their times.
    """
    names = {name.lower() for name in record.item_names}
    distinct = len(names) == len(record.item_names) and STEP not in names
    folder = isinstance(record.into, str) and record.into != CALLABLE
    if not (folder and distinct) or record.ordered or record.retain is not None:
        return ()
    return tuple(zip(record.item_names, record.item_types, strict=True))
