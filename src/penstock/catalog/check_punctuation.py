"""Checks of a stream's punctuations: columns that bound its event time, and those that restrict them."""

from __future__ import annotations

from penstock.errors import RegistrationError
from penstock.model import Stream
from penstock.model.punctuation import IS, PATTERN_TYPES, part_of
from penstock.model.stream import INTEGER_TYPES, TIME_TYPES


def check_punctuation(stream: Stream) -> None:
    """Refuse a punctuation that could not be read, with the reason and the remedy."""
    event_time = stream.column(stream.event_time)
    assert event_time is not None
    if stream.punctuation is not None:
        column = stream.column(stream.punctuation)
        if column is None or column.name == event_time.name:
            which = "has no column" if column is None else "has its event time in"
            msg = (
                f"stream {stream.name!r} {which} {stream.punctuation!r}; punctuation= takes another column, a "
                "stream or a DataFrame"
            )
            raise RegistrationError(msg)
        family = INTEGER_TYPES if event_time.type in INTEGER_TYPES else TIME_TYPES
        if column.type not in family | {"string"}:
            msg = (
                f"stream {stream.name!r}: punctuation {column.name!r} is {column.type} and bounds event time, which is "
                f"{event_time.type}; cast it to {event_time.type}"
            )
            raise RegistrationError(msg)
        narrowed = {c.name for c in stream.patterns}
        if not narrowed.isdisjoint((column.name, event_time.name)):
            msg = (
                f"stream {stream.name!r}: a punctuation in {column.name!r} bounds {event_time.name!r} by itself; "
                "narrow it by other columns"
            )
            raise RegistrationError(msg)
    for column in stream.patterns:
        part = part_of(stream, column.name)
        if part is None:
            msg = (
                f"stream {stream.name!r}: its punctuations have a column {column.name!r}, which is neither a "
                "column of the "
                "stream nor one followed by _from or _to; rename or drop it"
            )
            raise RegistrationError(msg)
        declared = stream.column(part[0])
        assert declared is not None
        bound = declared.name == event_time.name
        if column.type != declared.type or (bound and part[1] != IS):
            wanted = f"the bound {declared.name!r} alone" if bound and part[1] != IS else f"type {declared.type}"
            msg = (
                f"stream {stream.name!r}: column {column.name!r} of its punctuations is {column.type}; it must "
                f"be {wanted}"
            )
            raise RegistrationError(msg)
        if not bound and column.type not in PATTERN_TYPES:
            msg = (
                f"stream {stream.name!r}: punctuations cannot fix {column.name!r}, which is {column.type}; use "
                "an integer, a string or a boolean"
            )
            raise RegistrationError(msg)
