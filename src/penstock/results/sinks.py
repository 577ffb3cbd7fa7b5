"""Delivery: committed results go to their sinks afterwards, step by step, with a cursor for each sink.

A sink that fails delays only itself: it is tried again later, from its cursor. Delivery is at least once, and every
delivery names its step; a path gets each step's file exactly once, by a link that refuses a second one. Rows that lie in files of a
query's own as its select list says are not read again: the path gets these very files. The rows of an ordered query go out by time instead:
what progress has released since the last delivery, in order.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from penstock.model import Sink
from penstock.model.secrets import is_withheld
from penstock.model.time import NEVER
from penstock.results.folder import claim, link, publish
from penstock.results.layout import OWN
from penstock.results.part import Part
from penstock.spark.analysis import spark_message
from penstock.state.manifest import Manifest, ResultFile
from penstock.storage.crash_points import kill_point
from penstock.storage.local import LocalStore
from penstock.storage.secrets import redacted, resolved
from penstock.storage.store import Store

Target = str | Sink | Callable[[pa.Table, int], None]


class Rows(Protocol):
    """A part of the committed rows of a query and those that it continues, oldest first, as a DataFrame or as Arrow tables of bounded size."""

    def __call__(self, queries: Sequence[int], part: Part, *, as_frame: bool) -> Any: ...


RELEASED = " released"  # cursor of an ordered query: a result time, not a step
FIRST_RETRY = 1.0
LAST_RETRY = 60.0


@dataclass
class Delivery:
    """One sink and the queries that go to it with one schema; an ordered query goes alone.

    `released` = the result time up to which an ordered query has been delivered. `continued` = for each query the ones that it
    has taken the place of, oldest first, and itself: what they found and the sink has not got yet is not lost.
    """

    target: Target
    queries: tuple[tuple[int, str], ...]
    delivered: int
    released: int | None = None
    cursor: int = -1  # the last step with rows for it: what has to be remembered
    schema: tuple[str, ...] = ()
    continued: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    error: str | None = None
    retry_at: float = 0.0
    wait: float = FIRST_RETRY

    @property
    def name(self) -> str:
        return sink_name(self.target, self.queries[0][1], ordered=self.released is not None)

    @property
    def key(self) -> str:
        """Of its cursor in the manifest: queries of another schema may be elsewhere with the same sink."""
        return cursor_key(self.name, self.schema)

    def line(self, query: int) -> tuple[int, ...]:
        return self.continued.get(query, (query,))


def cursor_key(name: str, schema: Sequence[str]) -> str:
    return f"{name} #{zlib.crc32(chr(0).join(schema).encode()):08x}"


def sink_name(target: Target, query: str, *, ordered: bool = False) -> str:
    """What people know a sink by."""
    if ordered:
        return f"{sink_name(target, query)} for {query}"
    if isinstance(target, str):
        return f"path:{target}"
    if isinstance(target, Sink):
        return f"sink:{target}"
    return f"callable:{query}"


@dataclass
class Deliveries:
    """All sinks of the network."""

    rows: Rows
    complete: Callable[[int, Manifest], int]  # the time below which all results of a query are there
    sinks: list[Delivery] = field(default_factory=list)
    owner: str = ""  # the state directory, by its own name for itself
    store: Store | None = None  # where result files lie; without it rows are always read
    claimed: set[str] = field(default_factory=set)

    def deliver(self, manifest: Manifest) -> Mapping[str, int]:
        """Bring every sink up to the manifest as far as it lets us; the new cursors."""
        for sink in self.sinks:
            if sink.error is None or time.monotonic() >= sink.retry_at:
                self._deliver(sink, manifest)
        ordered = {sink.key + RELEASED: sink.released for sink in self.sinks if sink.released is not None}
        return {sink.key: sink.cursor for sink in self.sinks} | ordered

    def owes(self, file: ResultFile) -> bool:
        """Whether a sink has yet to get rows of a file."""
        return any(
            file.step > sink.delivered if sink.released is None else file.max_time >= sink.released
            for sink in self.sinks
            if not {q for q, _ in file.counts}.isdisjoint(one for query, _ in sink.queries for one in sink.line(query))
        )

    @property
    def owed(self) -> bool:
        return any(s.error is not None and time.monotonic() >= s.retry_at for s in self.sinks)

    def _deliver(self, sink: Delivery, manifest: Manifest) -> None:
        pending = _pending(sink, manifest)
        try:
            if sink.released is None:
                for step in sorted(pending):
                    if self._deliver_step(sink, pending[step], step):
                        sink.cursor = step
                    sink.delivered = step
            else:
                query = sink.queries[0][0]
                until = self.complete(query, manifest)
                if until > sink.released:
                    part = Part(horizon=sink.released, before=until)
                    self._send(sink.target, [sink.line(query)], manifest.step, part)
                    sink.released = until
            sink.delivered = manifest.step
            sink.error, sink.wait = None, FIRST_RETRY
        except BaseException as error:  # a sink may fail in any way, by sys.exit() too; it must not stop the engine
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C comes to the main thread only, and is meant for the program
            said = _cause(error)
            sink.error = redacted(said, sink.target.options) if isinstance(sink.target, Sink) else said
            sink.retry_at = time.monotonic() + sink.wait
            sink.wait = min(2 * sink.wait, LAST_RETRY)

    def _deliver_step(self, sink: Delivery, files: Sequence[ResultFile], step: int) -> bool:
        """Deliver the rows of a step, which lie in these files; whether there are any."""
        wanted = {one for query, _ in sink.queries for one in sink.line(query)}
        places: dict[int, list[ResultFile]] = {}
        for file in files:
            for query in wanted.intersection(q for q, _ in file.counts):
                places.setdefault(query, []).append(file)
        linked = {q: own for q, own in places.items() if self._is_linked(sink, own)}
        lines = [tuple(one for one in sink.line(q) if one in places.keys() - linked.keys()) for q, _ in sink.queries]
        if any(lines):
            self._send(sink.target, [line for line in lines if line], step, Part(since=step - 1, until=step))
        if linked:
            self._link(str(sink.target), linked, step)
        return bool(places)

    def _is_linked(self, sink: Delivery, files: Sequence[ResultFile]) -> bool:
        """Whether these are all files of one query alone, which a folder can have as they are."""
        return self.store is not None and isinstance(sink.target, str) and all(f.kind == OWN for f in files)

    def _link(self, folder: str, files: Mapping[int, Sequence[ResultFile]], step: int) -> None:
        """Publish the files of single queries. Their order, by which they are called, is the same at every attempt."""
        assert self.store is not None
        self._claim(folder)
        for query, own in files.items():
            for number, name in enumerate(sorted(file.name for file in own)):
                link(self.store.path(name), folder, f"part-{step:08d}-{query}-{number}.parquet")
                kill_point("after_link", step)
        LocalStore(folder).sync(["."])

    def _claim(self, folder: str) -> None:
        if folder not in self.claimed:
            claim(folder, self.owner)
            LocalStore(folder).sync(["../."])  # the folder itself may be new
            self.claimed.add(folder)

    def _send(self, target: Target, lines: Sequence[tuple[int, ...]], step: int, part: Part) -> None:
        if isinstance(target, Sink):
            options = resolved(target.options, f"sink {target}")
            union = reduce(DataFrame.union, [self.rows(line, part, as_frame=True) for line in lines])
            union.write.format(target.format).options(**options).mode("append").save()
            return
        for line in lines:
            tables = (table for table in self.rows(line, part, as_frame=False) if len(table))
            if not isinstance(target, str):
                for table in tables:
                    target(table, step)
            elif (first := next(tables, None)) is not None:
                self._claim(target)
                publish(target, f"part-{step:08d}-{line[-1]}.parquet", chain([first], tables))


def _cause(error: BaseException) -> str:
    """What a sink said, in one line."""
    if isinstance(error, PySparkException | Py4JJavaError):
        return spark_message(error)
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _pending(sink: Delivery, manifest: Manifest) -> dict[int, list[ResultFile]]:
    """The files of later steps than the sink has got, by step."""
    found: dict[int, list[ResultFile]] = {}
    for file in manifest.results.values():
        if file.step > sink.delivered:
            found.setdefault(file.step, []).append(file)
    return found


@dataclass(frozen=True)
class Recipient:
    """A query that has a sink. `line` are the queries that it has taken the place of, with the same sink, oldest first, and itself."""

    query: int
    name: str
    target: Target
    schema: tuple[str, ...]
    ordered: bool = False
    line: tuple[int, ...] = ()


def group_sinks(recipients: Iterable[Recipient], cursors: Mapping[str, int], step: int) -> list[Delivery]:
    """One delivery per sink and schema, and per ordered query; a sink that is new begins with the step after `step`."""
    groups: dict[tuple[str, tuple[str, ...]], list[Recipient]] = {}
    for recipient in recipients:
        name = sink_name(recipient.target, recipient.name, ordered=recipient.ordered)
        groups.setdefault((name, recipient.schema), []).append(recipient)
    found = []
    for (name, schema), members in groups.items():
        key = cursor_key(name, schema)
        queries = tuple((r.query, r.name) for r in members)
        begun = cursors.get(key, cursors.get(name, step))  # by its name alone in older state directories
        released = cursors.get(key + RELEASED, cursors.get(name + RELEASED, NEVER)) if members[0].ordered else None
        continued = {r.query: r.line or (r.query,) for r in members}
        # One may have been declared by this program, with its secrets, and the others by an earlier one.
        targets = sorted((r.target for r in members), key=lambda t: isinstance(t, Sink) and is_withheld(t.options))
        found.append(Delivery(targets[0], queries, begun, released, begun, schema, continued))
    return found
