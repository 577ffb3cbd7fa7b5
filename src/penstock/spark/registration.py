"""Changes of declarations: checked at once, beside the running step, and applied now or at the next step boundary.

What is checked of streams and queries is said in `catalog/check_stream` and `catalog/check_query`; what a change makes
of the registry in `catalog/catalog`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame

from penstock.catalog.catalog import Catalog
from penstock.catalog.check_query import prepare
from penstock.catalog.check_sink import Into
from penstock.catalog.check_stream import check_stream
from penstock.catalog.compiled import ParsedSelect
from penstock.errors import RegistrationError
from penstock.model import Stream
from penstock.spark.inputs import Inputs
from penstock.spark.open_stream import open_stream
from penstock.spark.stream_arguments import with_punctuations
from penstock.sql import AlterQuery, CreateQuery
from penstock.state.registry import QueryRecord


@dataclass(frozen=True)
class Registration:
    """Changes of a catalog; `make` applies one now if nothing runs, else at the next step boundary of the run."""

    catalog: Catalog
    inputs: Inputs
    make: Callable[[Callable[[], None]], None]

    def declare(
        self, stream: Stream, frame: DataFrame, other: DataFrame | None = None, *, altered: bool = False
    ) -> None:
        """Register a stream with its punctuations: those of another DataFrame, or of a declared stream."""
        stream, whole = with_punctuations(self.inputs, stream, frame, other)
        self.make(partial(self.inputs.add, stream, whole, altered=altered))

    def alter_stream(self, stream: Stream) -> None:
        """Change delay or path of a registered stream, even of one that this program has not declared yet."""
        known, frame = self.catalog.streams[stream.name], None
        check_stream(stream)
        if known.source != stream.source and stream.name in self.inputs.frames:
            reader = next((s.name for s in self.catalog.streams.values() if s.punctuated_by == stream.name), None)
            if reader is not None:
                msg = (
                    f"stream {reader!r} has its punctuations from stream {stream.name!r}, whose path cannot "
                    "change while it does; drop it first"
                )
                raise RegistrationError(msg)
            stream, frame = with_punctuations(self.inputs, stream, open_stream(self.inputs.spark, stream), None)
        self.make(partial(self.inputs.alter, stream, frame))

    def drop_stream(self, name: str) -> None:
        self.make(partial(self.inputs.drop, name))

    def add(
        self,
        record: QueryRecord,
        into: Into | None,
        *,
        instead: bool,
        at: tuple[str, CreateQuery | AlterQuery] | None = None,
        parsed: ParsedSelect | None = None,
    ) -> None:
        """Register a query, `instead` of the one of its name; `at` is its place in a script, `parsed` its SELECT."""
        place = {} if at is None else {"script": at[0], "line": at[1].line, "column": at[1].column}
        checked, compiled = prepare(self.catalog, record, into, parsed=parsed, **place)  # type: ignore[arg-type]
        self.make(partial(self.catalog.add, checked, compiled, into, instead=instead))

    def altered(self, statement: AlterQuery) -> tuple[QueryRecord, Into | None]:
        """The replacement of a live query, and its sink: what the statement does not say stays unchanged."""
        known = self.catalog.live(statement.name)
        by_hand = known.ordered and not self.catalog.compiled(known).query.ordered  # not by its own ORDER BY
        into = known.into if statement.into is None else statement.into
        target = self.catalog.given.get(known.name, into) if statement.into is None else into
        record = replace(
            known, id=0, sql=statement.select.strip(), on_error=statement.on_error or known.on_error,
            retain=known.retain if statement.retain is None else statement.retain, start=statement.start,
            ordered=by_hand, since=-1, share=None, complete_from=(), emit=None,
        )  # fmt: skip
        return record, target

    def drop(self, name: str, *, purge: bool) -> None:
        self.catalog.live(name)
        self.make(partial(self.catalog.drop, name, purge=purge))
