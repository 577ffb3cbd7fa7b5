"""The manifest: which files exist, the progress of each stream, and all counters, as of each step.

It is a log. Each step appends one entry by put-if-absent; every so often the whole state is written as one entry, a
snapshot, so that opening reads at most twice the state. A file that no entry names does not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import structs

from penstock.errors import StateError
from penstock.planner.counters import Counters
from penstock.planner.decisions import Decided
from penstock.planner.folding import FoldingStatistics
from penstock.planner.orders.mode import ModeState
from penstock.planner.pane_sharing import PaneStatistics
from penstock.planner.reached import Clock, Closing
from penstock.state.buckets import Split
from penstock.state.cursors import Shown, SinkCursor
from penstock.state.flushed import Flushed
from penstock.state.owed import Owed, with_more, without_paid
from penstock.state.result_files import ResultFile, ResultFiles
from penstock.state.run import RunEntry
from penstock.state.side_files import SideFile, SideFiles
from penstock.state.suspension import Suspension
from penstock.storage.codec import exact, plain
from penstock.storage.faults import RESTORE
from penstock.storage.log import Log
from penstock.storage.store import Store

SNAPSHOT_EVERY = 64
Ended = Literal["", "before", "now"]
BEFORE: Ended = "before"
NOW: Ended = "now"
DECISIONS = 256  # that are kept
FENCES = 1000  # that are kept
DIGITS = 12  # of the number of a step in the name of its entry

Key = TypeVar("Key")
Value = TypeVar("Value")


# Punctuations of groups: a pattern, and the time below which no later row matches it.
Patterns = tuple[tuple[str, int], ...]
Closings = tuple[tuple[Closing, int], ...]


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No later row of the stream has a time below `value`. `kind` is what it was derived from.

    `stairs` are the times of the last rows for a delay in rows: (later rows, time). `closed` are groups whose
    punctuation is ahead of the whole stream: (pattern, time below which no later row matches it). They may be very
    many, so that an entry of the log has only those that its step added or moved (`grown`); None: `closed` replaces all
    earlier ones.
    """

    value: int
    newest: int
    kind: str = "delay"
    stairs: tuple[tuple[int, int], ...] = ()
    closed: Patterns = ()
    grown: Patterns | None = None

    def logged(self) -> Progress:
        """Its form in an entry of the log: without the groups that earlier entries have."""
        return self if self.grown is None else structs.replace(self, closed=())

    def after(self, before: Progress | None) -> Progress:
        """Its form in a manifest: with all groups ahead of the stream, and none that the stream has passed."""
        if self.grown is None or before is None:
            return structs.replace(self, closed=self.closed if self.grown is None else self.grown, grown=())
        if not self.grown and self.value == before.value:
            return structs.replace(self, closed=before.closed)
        known = {pattern: until for pattern, until in before.closed if until > self.value} | dict(self.grown)
        return structs.replace(self, closed=tuple(known.items()), grown=())


class Balance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The map of buckets from the next step on, see `buckets.BucketMap`, and the clock at which it was chosen."""

    starts: tuple[int, ...]
    splits: tuple[Split, ...]
    at: float


class Forgotten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is no longer kept: counters and suspensions of queries, cursors of sinks, queries that were shown early."""

    counters: tuple[int, ...] = ()
    suspended: tuple[int, ...] = ()
    cursors: tuple[str, ...] = ()
    shown: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self != Forgotten()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a manifest has beside files: in full there, and in the entry of a step what that step changed.

    `counters` add up, `progress` and `derived` are replaced, other mappings by key. `orders` are the statistics for
    probe orders, by join, `panes` those for pane sets, and `folding` those for partials in mappers, by aggregate;
    `decisions` are the last ones. `closed` is the progress, by stream, up to which joins with windows that count rows,
    and aggregates, have been evaluated; `closed_groups` are the punctuations that closed windows of single groups ahead
    of it. `derived` is the last step whose results each derived stream has read. `flushed` are the positions of
    aggregates with capped results, per range of keys. `cursors` are those of sinks, `shown` those of early results and
    `suspended` the reasons for suspensions, by query; `owed` are the probes that steps have put off. `epoch` is that of
    the owner, and `fences` are the empty steps with which owners began (decision 0040).
    `balance` is the map of buckets to tasks, if one was chosen.
    """

    step: int = -1
    last_batch: int = -1
    identity: str = ""
    version: int = 0
    clock: float = 0.0
    final: bool = False
    progress: Mapping[str, Progress] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    cursors: Mapping[str, SinkCursor] = field(default_factory=dict)
    shown: Mapping[int, Shown] = field(default_factory=dict)
    suspended: Mapping[int, Suspension] = field(default_factory=dict)
    orders: Mapping[str, ModeState] = field(default_factory=dict)
    decisions: tuple[Decided, ...] = ()
    closed: Closings = ()
    derived: Mapping[str, int] = field(default_factory=dict)
    closed_groups: Mapping[str, Patterns] = field(default_factory=dict)
    flushed: Mapping[str, tuple[Flushed, ...]] = field(default_factory=dict)
    panes: Mapping[str, PaneStatistics] = field(default_factory=dict)
    folding: Mapping[str, FoldingStatistics] = field(default_factory=dict)
    balance: Balance | None = None
    owed: tuple[Owed, ...] = ()
    epoch: int = 0
    fences: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Entry(Facts):
    """What one step changed. `forgotten` is no longer needed, `paid` no longer owed.

    `ended` says by which punctuations it has closed groups: those BEFORE it, those NOW known, or none; `closed_groups`
    are those of streams that used others.

    The entry that makes a manifest from nothing is its snapshot.
    """

    batch: int | None = None
    runs_added: tuple[RunEntry, ...] = ()
    runs_removed: tuple[str, ...] = ()
    results: tuple[ResultFile, ...] = ()
    results_removed: tuple[str, ...] = ()
    sides: tuple[SideFile, ...] = ()
    sides_removed: tuple[str, ...] = ()
    ended: Ended = ""
    forgotten: Forgotten = Forgotten()  # noqa: RUF009  (frozen)
    paid: tuple[Owed, ...] = ()


FACTS = tuple(fact.name for fact in fields(Facts))


@dataclass(frozen=True, kw_only=True)
class Manifest(Facts):
    """The state as of the last committed step."""

    runs: Mapping[str, RunEntry] = field(default_factory=dict)
    results: ResultFiles = field(default_factory=ResultFiles)
    sides: SideFiles = field(default_factory=SideFiles)

    def apply(self, entry: Entry) -> Manifest:
        """The manifest after one more step."""
        runs = self.runs
        if entry.runs_added or entry.runs_removed:
            gone = set(entry.runs_removed)
            runs = {n: r for n, r in runs.items() if n not in gone} | {r.name: r for r in entry.runs_added}
        results = self.results.changed(entry.results, entry.results_removed)
        sides = self.sides.changed(
            [s if s.at >= 0 else structs.replace(s, at=entry.clock) for s in entry.sides], entry.sides_removed
        )
        lost = entry.forgotten
        counters = self.counters
        if lost.counters:
            counters = structs.replace(counters, queries=dict(_without(counters.queries, lost.counters)))
        counters = counters.plus(entry.counters)
        progress = {name: p.after(self.progress.get(name)) for name, p in entry.progress.items()}
        by = {BEFORE: self.progress, NOW: progress}.get(entry.ended, {})
        groups = {**self.closed_groups, **{name: p.closed for name, p in by.items()}, **entry.closed_groups}
        return replace(
            self, step=entry.step, last_batch=entry.last_batch, identity=entry.identity, version=entry.version,
            clock=entry.clock,
            progress=progress, counters=counters, runs=runs, results=results, sides=sides,
            cursors=_without({**self.cursors, **entry.cursors}, lost.cursors),
            shown=_without({**self.shown, **entry.shown}, lost.shown),
            suspended=_without({**self.suspended, **entry.suspended}, lost.suspended),
            final=entry.final,
            orders=dict(entry.orders) or self.orders, decisions=(*self.decisions, *entry.decisions)[-DECISIONS:],
            closed=tuple((c, v) for c, v in dict((*self.closed, *entry.closed)).items() if c.stream in entry.progress),
            derived=dict(entry.derived),
            closed_groups={n: p for n, p in groups.items() if p and n in entry.progress},
            flushed={**self.flushed, **entry.flushed}, panes=dict(entry.panes) or self.panes,
            folding=dict(entry.folding) or self.folding, balance=entry.balance or self.balance,
            owed=with_more(without_paid(self.owed, entry.paid), entry.owed),
            epoch=entry.epoch, fences=(*self.fences, *entry.fences)[-FENCES:],
        )  # fmt: skip

    def whole(self) -> Entry:
        """The entry that makes this manifest from nothing."""
        facts = {name: getattr(self, name) for name in FACTS}
        facts["progress"] = {name: structs.replace(own, grown=None) for name, own in self.progress.items()}
        files = (tuple(self.runs.values()), tuple(self.results.values()), tuple(self.sides))
        return Entry(**facts, runs_added=files[0], results=files[1], sides=files[2])

    @property
    def worked(self) -> int:
        """The last step that was no fence."""
        step, fences = self.step, set(self.fences)
        while step in fences:
            step -= 1
        return step

    def progress_values(self) -> dict[str, int]:
        return {name: p.value for name, p in self.progress.items()}

    def reached(self) -> dict[Clock, int]:
        """Progress, and what the last step with a job closed."""
        found: dict[Clock, int] = {name: own.value for name, own in self.progress.items()}
        return found | dict(self.closed)

    def runs_of(self, table: str) -> list[RunEntry]:
        return [r for r in self.runs.values() if r.table == table]


def _without(found: Mapping[Key, Value], gone: Collection[Key]) -> Mapping[Key, Value]:
    return {key: value for key, value in found.items() if key not in gone} if gone else found


class ManifestLog:
    """Reads and appends the log under `manifest/`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.steps = Log(store, "manifest", "step", _encoded, _decoded, DIGITS)
        self.snapshots = Log(store, "manifest", "step", _encoded, _decoded, DIGITS, "snapshot-")
        self._snapshot_bytes = self._bytes_since = 0

    def load(self) -> Manifest:
        """The manifest of the last committed step; an empty one if there is none."""
        steps = self.steps.numbers()
        snapshot, manifest = self.snapshots.newest_sized(), Manifest()
        self._snapshot_bytes = self._bytes_since = 0
        if snapshot is not None:
            manifest, self._snapshot_bytes = manifest.apply(snapshot[0]), snapshot[1]
        for step in steps:
            if step <= manifest.step:
                continue
            if step != manifest.step + 1:
                msg = (
                    f"the manifest of step {manifest.step + 1} is missing in {self.store.label('manifest')} "
                    f"although step {step} "
                    f"is there; {RESTORE}"
                )
                raise StateError(msg)
            try:
                entry, size = self.steps.sized(step)
            except FileNotFoundError:
                raise StateError(f"{self.steps.label(step)} is missing; {RESTORE}") from None
            if entry.epoch < manifest.epoch:
                msg = (
                    f"{self.steps.label(step)} is of epoch {entry.epoch} behind epoch {manifest.epoch}, so an engine "
                    f"put it that had lost its lease, or somebody has copied it; {RESTORE}"
                )
                raise StateError(msg)
            manifest = manifest.apply(entry)
            self._bytes_since += size
        return manifest

    def append(self, entry: Entry) -> Entry:
        """Commit a step; returns its record, with the owner's epoch. Raises if another engine has committed it."""
        own = self.put(entry)
        if own is None:
            msg = (
                f"step {entry.step} was already committed by another engine on {self.store.label('')}; only one "
                "may run at a time"
            )
            raise StateError(msg)
        return own

    def put(self, entry: Entry) -> Entry | None:
        """The same; None if another engine has committed the step."""
        own = replace(entry, epoch=self.store.epoch) if entry.epoch != self.store.epoch else entry
        size = self.steps.put(own)
        self._bytes_since += size
        return own if size else None

    def snapshot_if_due(self, manifest: Manifest) -> None:
        """A snapshot every so many steps, but only after the log has grown by its size: steps cost what they change."""
        due = manifest.step % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1 and self._bytes_since >= self._snapshot_bytes
        if due or manifest.final:
            self.snapshot(manifest)

    def snapshot(self, manifest: Manifest) -> None:
        """Write the whole manifest and drop the entries that two snapshots cover."""
        size = self.snapshots.put(manifest.whole())
        if not size:
            return
        self._snapshot_bytes, self._bytes_since = size, 0
        snapshots = self.snapshots.numbers()
        for step in snapshots[:-2]:
            self.snapshots.delete(step)
        fences = set(manifest.fences)  # which stay: whoever comes late finds the number taken
        for step in self.steps.numbers() if len(snapshots) > 1 else ():
            if step <= snapshots[-2] and step not in fences:
                self.steps.delete(step)


def _encoded(entry: Entry) -> dict[str, Any]:
    body = plain(replace(entry, progress={name: own.logged() for name, own in entry.progress.items()}))
    for name in ("epoch", "fences"):  # only where owners have leases
        if not body[name]:
            del body[name]
    return body


def _decoded(body: dict[str, Any]) -> Entry:
    return exact(body, Entry, _encoded)
