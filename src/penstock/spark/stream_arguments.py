"""Streams from a program: a streaming DataFrame, with its delay and punctuations as arguments.

What a declaration must satisfy, however it was made, is said in `catalog/check_stream`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame

from penstock.catalog.check_stream import check_stream, read_delay, read_length
from penstock.errors import RegistrationError, did_you_mean
from penstock.model import Column, Stream
from penstock.model.stream import INTEGER_TYPES
from penstock.model.time import EARLIEST, LATEST, instant, instant_of
from penstock.spark.analysis import check_source, columns_of
from penstock.spark.inputs import Inputs
from penstock.spark.punctuation import marked, pattern_columns
from penstock.sql.alter_stream import with_delay, with_path

FOR_EVER = "forever"


def given_stream(
    name: str,
    frame: DataFrame,
    *,
    event_time: str,
    delay: str | int | None,
    late: str,
    bad: str,
    idle: str | None,
    idle_skew: str,
    heartbeat: str | None,
    sequence: str | None,
    ordered: bool,
    told: bool,
    side_retain: str,
) -> Stream:
    """The stream of these arguments, without its punctuations yet; `told` if it will have some."""
    check_source(name, frame)
    columns = tuple(Column(n, t) for n, t in columns_of(frame))
    called = {c.name.lower(): c.name for c in columns}  # names ignore case, as in Spark
    event_time = called.get(event_time.lower(), event_time)
    sequence = None if sequence is None else called.get(sequence.lower(), sequence)
    integer = any(c.name == event_time and c.type in INTEGER_TYPES for c in columns)
    told = told or heartbeat is not None
    length, rows = read_delay(name, delay, ordered=ordered, told=told, integer=integer)

    def length_of(what: str, text: str | None) -> int | None:
        return None if text is None else read_length(text, f"stream {name!r}, {what}")

    return Stream(
        name,
        columns,
        event_time,
        length,
        late,
        bad,
        length_of("idle", idle),
        read_length(idle_skew, f"stream {name!r}, idle_skew"),
        sequence,
        delay_rows=rows,
        heartbeat=length_of("heartbeat", heartbeat),
        side_retain=None if side_retain == FOR_EVER else length_of("side_retain", side_retain),
    )


def punctuated(
    stream: Stream, punctuation: str | DataFrame | None, patterns: Sequence[str], declared: Collection[str]
) -> tuple[Stream, DataFrame | None]:
    """The stream with its punctuations, and the other DataFrame that has them, if any; `declared` are known streams."""
    if patterns and (isinstance(punctuation, DataFrame) or punctuation is None):
        msg = (
            f"stream {stream.name!r}: patterns= narrows punctuations in a column of the stream; name that column "
            "with punctuation="
        )
        raise RegistrationError(msg)
    if punctuation is None:
        return stream, None
    if isinstance(punctuation, DataFrame):
        check_source(f"{stream.name} (punctuation)", punctuation)
        return stream, punctuation
    if stream.column(punctuation) is None and punctuation in declared:
        return replace(stream, punctuated_by=punctuation), None
    unknown = next((name for name in patterns if stream.column(name) is None), None)
    if unknown is not None:
        hint = did_you_mean(unknown, (c.name for c in stream.columns))
        raise RegistrationError(f"stream {stream.name!r} has no column {unknown!r} to narrow punctuations by; {hint}")
    found = (stream.column(each) for each in patterns)
    return replace(stream, punctuation=punctuation, patterns=tuple(c for c in found if c is not None)), None


def with_punctuations(
    inputs: Inputs, stream: Stream, frame: DataFrame, other: DataFrame | None
) -> tuple[Stream, DataFrame]:
    """A declared stream, checked, and its DataFrame with punctuations of another DataFrame or declared stream."""
    if stream.punctuated_by is not None:
        source = inputs.catalog.stream(stream.punctuated_by)
        other = inputs.frames.get(source.name)
        if other is None:
            msg = (
                f"stream {stream.name!r} has its punctuations from stream {stream.punctuated_by!r}; declare that "
                "one first"
            )
            raise RegistrationError(msg)
        other = other.select(*[c.name for c in source.columns])
    if other is not None:
        stream = replace(stream, patterns=pattern_columns(other))
    check_stream(stream)
    return stream, marked(stream, frame, other)


def changed_stream(stream: Stream, delay: str | int | None, path: str | Path | None) -> Stream:
    """A stream with another delay or path; None means unchanged."""
    if delay is None and path is None:
        raise RegistrationError(f"stream {stream.name!r}: nothing is to change; give delay= or path=")
    if delay is not None:
        length, rows = read_delay(stream.name, delay, ordered=False, told=True, integer=stream.integer_time)
        stream = replace(stream, delay=length, delay_rows=None) if rows is None else with_delay(stream, rows, "rows")
    return stream if path is None else with_path(stream, str(path))


def time_to_advance(stream: Stream, to: int | str | datetime) -> int:
    """The time to which a stream is advanced, in units of its event time."""
    if stream.integer_time != (isinstance(to, int) and not isinstance(to, bool)):
        kind = "an integer" if stream.integer_time else "a time, such as '2024-05-01 12:30:00'"
        raise RegistrationError(f"stream {stream.name!r} is advanced to {kind}, not to {to!r}")
    try:
        value = to if isinstance(to, int) else instant(to) if isinstance(to, str) else instant_of(to)
    except ValueError as error:
        raise RegistrationError(f"stream {stream.name!r}: {error}") from None
    if not EARLIEST <= value <= LATEST:
        raise RegistrationError(f"stream {stream.name!r} cannot be advanced to {to!r}: no event time is so far away")
    return value
