"""CAST as a term, where kernels cast as Spark does, and constants of dates and times."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from penstock.columns.terms.values import WIDTHS
from penstock.columns.types import exact_digits
from penstock.model import Call, Literal, Typed
from penstock.sql.found import MOST_SCALE, Found, cast, in_type
from penstock.sql.inference import VOID

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?")
_FROM_WHOLE = frozenset({*WIDTHS, "double", "boolean", "string"})
_TARGETS = {
    **dict.fromkeys(WIDTHS, _FROM_WHOLE),
    "double": frozenset({*WIDTHS, "double", "boolean"}),
    "float": frozenset({*WIDTHS, "double"}),
    "boolean": frozenset({*WIDTHS, "string", "boolean", "double"}),
    "string": frozenset({"string"}),
}


def cast_term(inner: Found, target: str) -> Found | None:
    """An explicit cast."""
    if inner.type == VOID:
        return None
    if inner.type == target:
        return Found(inner.term, target)
    if target in _TARGETS.get(inner.type, ()):
        return Found(cast(Found(inner.term, inner.type), target), target)
    if exact_digits(target) is not None and inner.type not in ("float", "double"):
        wide = exact_digits(inner.type) is not None and in_type(Found(inner.term, inner.type), target)
        digits = exact_digits(target)
        exact = wide or (inner.type in WIDTHS and digits is not None and digits[1] <= MOST_SCALE)
        held = in_type(Found(inner.term, inner.type), target) if exact and target not in WIDTHS else None
        return None if held is None else Found(held, target)
    if inner.type.startswith("decimal("):
        return Found(cast(inner, target), target) if target == "double" else None
    return _timed(inner, target)


def _timed(inner: Found, target: str) -> Found | None:
    match inner.type, target:
        case "timestamp", "timestamp_ntz":
            return Found(local(inner), target)
        case "timestamp_ntz", "timestamp":
            return Found(Call("instant", (inner.term,), target), target)
        case "timestamp", "date":
            return Found(Call("day_of", (local(inner),), target), target)
        case "timestamp_ntz", "date":
            return Found(Call("day_of", (inner.term,), target), target)
        case "date", "timestamp_ntz":
            return Found(Call("midnight", (inner.term,), target), target)
        case "date", "timestamp":
            return Found(Call("instant", (Call("midnight", (inner.term,), "timestamp_ntz"),), target), target)
    return None


def local(inner: Found) -> Call:
    """A time on the wall clock of the session's zone."""
    return Call("local", (inner.term,), "timestamp_ntz")


def constant_time(text: str, target: str) -> Found | None:
    """DATE '..' or TIMESTAMP '..', in the basic form that Python and Spark read alike."""
    try:
        if target == "date" and _DATE.fullmatch(text):
            days = (date.fromisoformat(text) - date(1970, 1, 1)).days
            return Found(Typed(Literal(days, "bigint"), "date"), target)
        if target in ("timestamp", "timestamp_ntz") and _TIME.fullmatch(text):
            micros = (datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
                microseconds=1
            )
            wall = Found(Typed(Literal(micros, "bigint"), "timestamp_ntz"), "timestamp_ntz")
            return wall if target == "timestamp_ntz" else _timed(wall, target)
    except ValueError:
        return None
    return None
