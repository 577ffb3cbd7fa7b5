"""Delivery: committed results go to their sinks afterwards, step by step, with a cursor for each sink.

A failing sink delays only itself: delivery is tried again later, from its cursor. Delivery is at least once, and every
delivery names its step, so that a sink can recognize repetitions (decision 0008). The rows of an ordered query are
delivered by time instead: what progress has released since the last delivery, in order.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from penstock.model import Sink
from penstock.model.secrets import is_withheld
from penstock.model.time import NEVER
from penstock.results.part import Part
from penstock.results.sink import Into, Line, OpenSink
from penstock.state.cursors import SinkCursor
from penstock.state.manifest import Manifest
from penstock.state.result_files import ResultFile
from penstock.storage.secrets import redacted

FIRST_RETRY = 1.0
LAST_RETRY = 60.0


@dataclass(frozen=True)
class SinkQuery:
    """A query with a sink. `line` are the queries that it replaced, with the same sink, oldest first, and itself."""

    query: int
    name: str
    into: Into
    schema: tuple[str, ...]
    ordered: bool = False
    line: tuple[int, ...] = ()


@dataclass
class SinkState:
    """One sink, its queries with one schema, and what it has received; an ordered query is delivered alone.

    `released` = the result time up to which an ordered query has been delivered. `continued` = for each query those
    that it replaced, oldest first, and itself: their undelivered results are not lost.
    """

    name: str
    into: Into
    sink: OpenSink
    queries: tuple[tuple[int, str], ...]
    delivered: int
    released: int | None = None
    cursor: int = -1  # the last step with rows for it: what must be stored
    schema: tuple[str, ...] = ()
    continued: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    error: str | None = None
    retry_at: float = 0.0
    wait: float = field(default_factory=lambda: FIRST_RETRY)

    @property
    def key(self) -> str:
        """The key of its cursor in the manifest: queries of another schema may have another cursor."""
        return cursor_key(self.name, self.schema)

    @cached_property
    def all_queries(self) -> frozenset[int]:
        """The queries whose results it receives."""
        return frozenset(one for query, _ in self.queries for one in self.line(query))

    def line(self, query: int) -> tuple[int, ...]:
        return self.continued.get(query, (query,))


def cursor_key(name: str, schema: Sequence[str]) -> str:
    return f"{name} #{zlib.crc32(chr(0).join(schema).encode()):08x}"


def cause_of(error: BaseException) -> str:
    """An error of a sink, in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


@dataclass
class Delivery:
    """All sinks of the network."""

    complete: Callable[[int, Manifest], int]  # the time below which a query's results are complete
    sinks: Sequence[SinkState] = ()
    cause: Callable[[BaseException], str] = cause_of

    def deliver(self, manifest: Manifest) -> Mapping[str, SinkCursor]:
        """Deliver to every sink up to the manifest, as far as it accepts; returns the new cursors."""
        now = time.monotonic()
        due = [sink for sink in self.sinks if sink.error is None or now >= sink.retry_at]
        fresh = _by_step(manifest, min((s.delivered for s in due if s.released is None), default=manifest.step))
        for sink in due:
            self._deliver(sink, manifest, fresh)
        return {sink.key: SinkCursor(sink.cursor, sink.released) for sink in self.sinks}

    def owes(self, file: ResultFile) -> bool:
        """Whether a sink still needs rows of a file."""
        queries = {query for query, _ in file.counts}
        return any(
            file.step > sink.delivered if sink.released is None else file.max_time >= sink.released
            for sink in self.sinks
            if not sink.all_queries.isdisjoint(queries)
        )

    @property
    def owed(self) -> bool:
        return any(s.error is not None and time.monotonic() >= s.retry_at for s in self.sinks)

    def _deliver(self, sink: SinkState, manifest: Manifest, fresh: Fresh) -> None:
        try:
            if sink.released is None:
                for step in sorted(step for step in fresh if step > sink.delivered):
                    if lines := _lines(sink, fresh[step], step):
                        sink.sink.write(lines, step)
                        sink.cursor = step
                    sink.delivered = step
            else:
                query = sink.queries[0][0]
                until = self.complete(query, manifest)
                if until > sink.released:
                    part = Part(horizon=sink.released, before=until)
                    sink.sink.write([Line(sink.line(query), part)], manifest.step)
                    sink.released = until
            sink.delivered = manifest.step
            sink.error, sink.wait = None, FIRST_RETRY
        except BaseException as error:  # a sink may fail in any way, even sys.exit(); it must not stop the engine
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C is raised in the main thread only, and is meant for the program
            said = self.cause(error)
            sink.error = redacted(said, sink.into.options) if isinstance(sink.into, Sink) else said
            sink.retry_at = time.monotonic() + sink.wait
            sink.wait = min(2 * sink.wait, LAST_RETRY)


Fresh = Mapping[int, Mapping[int, Sequence[ResultFile]]]  # by step and by query, the files with its rows


def _by_step(manifest: Manifest, delivered: int) -> Fresh:
    """The files of later steps."""
    found: dict[int, dict[int, list[ResultFile]]] = {}
    for file in manifest.results.since(delivered):
        of_step = found.setdefault(file.step, {})
        for query, _ in file.counts:
            of_step.setdefault(query, []).append(file)
    return found


def _lines(sink: SinkState, files: Mapping[int, Sequence[ResultFile]], step: int) -> list[Line]:
    """A sink's results of a step."""
    part, found = Part(since=step - 1, until=step), []
    for query, _ in sink.queries:
        own = {one: files[one] for one in sink.line(query) if one in files}
        if own:
            found.append(Line(tuple(own), part, own))
    return found


def group_sinks(
    queries: Iterable[SinkQuery], cursors: Mapping[str, SinkCursor], step: int, open_sink: Callable[[Into], OpenSink]
) -> list[SinkState]:
    """One state per sink and schema, and per ordered query; a new sink begins with the step after `step`."""
    groups: dict[tuple[str, tuple[str, ...]], list[SinkQuery]] = {}
    for query in queries:
        name = open_sink(query.into).name(query.name) + (f" for {query.name}" if query.ordered else "")
        groups.setdefault((name, query.schema), []).append(query)
    found = []
    for (name, schema), members in groups.items():
        key = cursor_key(name, schema)
        named = tuple((m.query, m.name) for m in members)
        begun = cursors.get(key, SinkCursor(step))
        released = (NEVER if begun.released is None else begun.released) if members[0].ordered else None
        continued = {m.query: m.line or (m.query,) for m in members}
        # This program may have declared one, with its secrets, and an earlier one the others.
        into = min((m.into for m in members), key=lambda into: isinstance(into, Sink) and is_withheld(into.options))
        found.append(SinkState(name, into, open_sink(into), named, begun.step, released, begun.step, schema, continued))
    return found
