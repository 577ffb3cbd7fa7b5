"""Which registered queries ask for files of their own: those whose rows go to a folder and are shown as they were found."""

from __future__ import annotations

from penstock.catalog.check_sink import CALLABLE
from penstock.state.registry import QueryRecord

STEP = "_step"


def listed_of(record: QueryRecord) -> tuple[tuple[str, str], ...]:
    """Names and types of the select list; nothing if the rows have to be stored with more than that.

    Rows that are given up after a while, or come in order, need their times.
    """
    names = {name.lower() for name in record.item_names}
    distinct = len(names) == len(record.item_names) and STEP not in names
    folder = isinstance(record.into, str) and record.into != CALLABLE
    if not (folder and distinct) or record.ordered or record.retain is not None:
        return ()
    return tuple(zip(record.item_names, record.item_types, strict=True))
