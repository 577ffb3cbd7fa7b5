"""The manifest: which files exist, how far each stream has come, and what was counted, as of each step.

It is a log. Each step appends one entry by put-if-absent; every so often a snapshot of the whole is written, so that opening
reads one snapshot and a few entries. A file that no entry names does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from penstock.errors import StateError
from penstock.planner.counters import Counters
from penstock.planner.network import closing, stream_of
from penstock.state.flushed import Flushed
from penstock.state.result_files import ResultFile, ResultFiles
from penstock.state.run import RunEntry
from penstock.storage.faults import RESTORE
from penstock.storage.log import Log
from penstock.storage.store import Store

SNAPSHOT_EVERY = 64
BEFORE, NOW = "before", "now"
DECISIONS = 256  # that are remembered
DIGITS = 12  # of the number of a step in the name of its entry


# Punctuations of groups: a pattern, and below which time no later row matches it.
Patterns = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Progress:
    """No later row of the stream has a time below `value`. `kind` says what it was derived from.

    `stairs` is what a delay in rows remembers of the last rows: (rows that came after, time). `closed` are groups whose punctuation is ahead of
    the whole stream: (pattern, no later row that matches it has a time below this). They may be very many, so that an entry of the log only says
    which ones its step has added or moved (`grown`); None: `closed` takes the place of what was known before.
    """

    value: int
    newest: int
    kind: str = "delay"
    stairs: tuple[tuple[int, int], ...] = ()
    closed: Patterns = ()
    grown: Patterns | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Progress:
        pairs = {key: _pairs(data.get(key, ())) for key in ("stairs", "closed")}
        grown = data.get("grown")
        return cls(**{**data, **pairs, "grown": None if grown is None else _pairs(grown)})

    def to_json(self) -> dict[str, Any]:
        return self.__dict__ if self.grown is None else {**self.__dict__, "closed": ()}

    def after(self, before: Progress | None) -> Progress:
        """As the manifest has it behind a step: with all groups that are ahead of the stream, and none that the stream has passed."""
        if self.grown is None or before is None:
            return replace(self, closed=self.closed if self.grown is None else self.grown, grown=())
        if not self.grown and self.value == before.value:
            return replace(self, closed=before.closed)
        known = {pattern: until for pattern, until in before.closed if until > self.value} | dict(self.grown)
        return replace(self, closed=tuple(known.items()), grown=())


@dataclass(frozen=True)
class SideFile:
    """A committed file of whole rows that were late or bad; `at` is the clock of the step that committed it, in seconds."""

    name: str
    stream: str
    reason: str
    step: int
    rows: int
    bytes: int
    at: float = 0.0


class Forgotten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is remembered no longer: counters of queries, suspensions of queries, and cursors."""

    counters: tuple[int, ...] = ()
    suspended: tuple[str, ...] = ()
    cursors: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.counters or self.suspended or self.cursors)


@dataclass(frozen=True)
class Entry:
    """What one step changed. `forgotten` belongs to nobody any longer; `ended` says by which
    punctuations of groups it has closed: those BEFORE it, those NOW known, or none; `closed_groups` are those of streams of which it was by others.
    """

    step: int
    batch: int | None
    last_batch: int
    identity: str
    version: int
    clock: float
    progress: Mapping[str, Progress]
    counters: Counters
    runs_added: tuple[RunEntry, ...] = ()
    runs_removed: tuple[str, ...] = ()
    results: tuple[ResultFile, ...] = ()
    results_removed: tuple[str, ...] = ()
    sides: tuple[SideFile, ...] = ()
    sides_removed: tuple[str, ...] = ()
    cursors: Mapping[str, int] = field(default_factory=dict)
    suspended: Mapping[str, str] = field(default_factory=dict)
    final: bool = False
    orders: Mapping[str, Any] = field(default_factory=dict)
    decisions: tuple[Mapping[str, Any], ...] = ()
    closed: Mapping[str, int] = field(default_factory=dict)
    derived: Mapping[str, int] = field(default_factory=dict)
    ended: str = ""
    closed_groups: Mapping[str, Patterns] = field(default_factory=dict)
    flushed: Mapping[str, tuple[Flushed, ...]] = field(default_factory=dict)
    panes: Mapping[str, Any] = field(default_factory=dict)
    folding: Mapping[str, Any] = field(default_factory=dict)
    forgotten: Forgotten = Forgotten()  # noqa: RUF009  (frozen)


@dataclass(frozen=True)
class Manifest:
    """The state as of the last committed step. `counters` are totals since the beginning, by 'kind:name'.

    `orders` is what the choice of probe orders has to remember, by join, and `decisions` are its last ones. `closed` is the progress, by stream,
    up to which joins with windows that count rows, and aggregates, have been evaluated; `closed_groups` are the punctuations by which
    windows of single groups have been closed ahead of it. `derived` is the last step whose results have been taken in by each derived stream.
    `panes` is what the choice of pane sets has to remember, by aggregate, `folding` what that of partials in mappers has. `flushed` says of aggregates whose results are let out slowly, for each range of keys, which are out.
    """

    step: int = -1
    last_batch: int = -1
    identity: str = ""
    version: int = 0
    clock: float = 0.0
    progress: Mapping[str, Progress] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    runs: Mapping[str, RunEntry] = field(default_factory=dict)
    results: ResultFiles = field(default_factory=ResultFiles)
    sides: tuple[SideFile, ...] = ()
    cursors: Mapping[str, int] = field(default_factory=dict)
    suspended: Mapping[str, str] = field(default_factory=dict)
    final: bool = False
    orders: Mapping[str, Any] = field(default_factory=dict)
    decisions: tuple[Mapping[str, Any], ...] = ()
    closed: Mapping[str, int] = field(default_factory=dict)
    derived: Mapping[str, int] = field(default_factory=dict)
    closed_groups: Mapping[str, Patterns] = field(default_factory=dict)
    flushed: Mapping[str, tuple[Flushed, ...]] = field(default_factory=dict)
    panes: Mapping[str, Any] = field(default_factory=dict)
    folding: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, entry: Entry) -> Manifest:
        """The manifest after one more step."""
        gone = set(entry.runs_removed)
        runs = {n: r for n, r in self.runs.items() if n not in gone} | {r.name: r for r in entry.runs_added}
        results = self.results.changed(entry.results, entry.results_removed)
        aside = {s.name: s for s in (*self.sides, *(replace(s, at=s.at or entry.clock) for s in entry.sides))}
        for name in entry.sides_removed:
            aside.pop(name, None)
        lost = entry.forgotten
        counters = self.counters
        if lost.counters:
            left = {query: own for query, own in counters.queries.items() if query not in lost.counters}
            counters = msgspec.structs.replace(counters, queries=left)
        counters = counters.plus(entry.counters)
        progress = {name: p.after(self.progress.get(name)) for name, p in entry.progress.items()}
        by = {BEFORE: self.progress, NOW: progress}.get(entry.ended, {})
        groups = {**self.closed_groups, **{name: p.closed for name, p in by.items()}, **entry.closed_groups}
        return replace(
            self, step=entry.step, last_batch=entry.last_batch, identity=entry.identity, version=entry.version, clock=entry.clock,
            progress=progress, counters=counters, runs=runs, results=results, sides=tuple(aside.values()),
            cursors={n: c for n, c in {**self.cursors, **entry.cursors}.items() if n not in lost.cursors},
            suspended={n: why for n, why in {**self.suspended, **entry.suspended}.items() if n not in lost.suspended}, final=entry.final,
            orders=dict(entry.orders) or self.orders, decisions=(*self.decisions, *entry.decisions)[-DECISIONS:],
            closed={n: v for n, v in {**self.closed, **entry.closed}.items() if stream_of(n) in entry.progress},
            derived=dict(entry.derived),
            closed_groups={n: p for n, p in groups.items() if p and n in entry.progress},
            flushed={**self.flushed, **entry.flushed}, panes=dict(entry.panes) or self.panes,
            folding=dict(entry.folding) or self.folding,
        )  # fmt: skip

    def progress_values(self) -> dict[str, int]:
        return {name: p.value for name, p in self.progress.items()}

    def reached(self) -> dict[str, int]:
        """Progress, and under names of their own what was closed by the last step that ran."""
        return self.progress_values() | {closing(stream): value for stream, value in self.closed.items()}

    def runs_of(self, table: str) -> list[RunEntry]:
        return [r for r in self.runs.values() if r.table == table]


class ManifestLog:
    """Reads and appends the log under `manifest/`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.steps = Log(store, "manifest", "step", _plain, _entry, DIGITS)
        self.snapshots = Log(store, "manifest", "step", _plain, _manifest, DIGITS, "snapshot-")

    def load(self) -> Manifest:
        """The manifest of the last committed step; an empty one if there is none."""
        steps = self.steps.numbers()
        manifest = self.snapshots.newest() or Manifest()
        for step in steps:
            if step <= manifest.step:
                continue
            if step != manifest.step + 1:
                msg = (
                    f"the manifest of step {manifest.step + 1} is missing in {self.store.label('manifest')} although step {step} "
                    f"is there; {RESTORE}"
                )
                raise StateError(msg)
            try:
                manifest = manifest.apply(self.steps.read(step))
            except FileNotFoundError:
                raise StateError(f"{self.steps.label(step)} is missing; {RESTORE}") from None
        return manifest

    def append(self, entry: Entry) -> None:
        """Commit a step. Raises if another engine has committed it."""
        if not self.steps.put(entry):
            msg = f"step {entry.step} was already committed by another engine on {self.store.label('')}; only one may run at a time"
            raise StateError(msg)

    def snapshot(self, manifest: Manifest) -> None:
        """Write the whole manifest and forget the entries that two snapshots cover."""
        if not self.snapshots.put(manifest):
            return
        snapshots = self.snapshots.numbers()
        for step in snapshots[:-2]:
            self.snapshots.delete(step)
        for step in self.steps.numbers() if len(snapshots) > 1 else ():
            if step <= snapshots[-2]:
                self.steps.delete(step)


def _plain(value: Entry | Manifest) -> dict[str, Any]:
    body: dict[str, Any] = dict(value.__dict__)
    entry = isinstance(value, Entry)
    body["progress"] = {n: p.to_json() if entry else p.__dict__ for n, p in value.progress.items()}
    body["sides"] = [s.__dict__ for s in value.sides]
    body["counters"], body["flushed"] = (
        msgspec.to_builtins(part, str_keys=True) for part in (value.counters, value.flushed)
    )
    if isinstance(value, Entry):
        body["forgotten"] = msgspec.to_builtins(value.forgotten)
        body["runs_added"] = [r.to_json() for r in value.runs_added]
        body["results"] = [_plain_result(r) for r in value.results]
    else:
        body["runs"] = [r.to_json() for r in value.runs.values()]
        body["results"] = [_plain_result(r) for r in value.results.values()]
    return body


def _pairs(values: Iterable[Sequence[Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((a, b) for a, b in values)


def _plain_result(file: ResultFile) -> dict[str, Any]:
    return {**file.__dict__, "counts": list(file.counts)}


def _common(body: dict[str, Any]) -> dict[str, Any]:
    body["progress"] = {n: Progress.from_json(p) for n, p in body["progress"].items()}
    body["sides"] = tuple(SideFile(**s) for s in body["sides"])
    body["closed_groups"] = {n: _pairs(p) for n, p in body.get("closed_groups", {}).items()}
    body["decisions"] = tuple(body.get("decisions", ()))
    body["flushed"] = msgspec.convert(body.get("flushed", {}), dict[str, tuple[Flushed, ...]])
    body["counters"] = msgspec.convert(body["counters"], Counters, str_keys=True)
    return body


def _entry(body: dict[str, Any]) -> Entry:
    body = _common(body)
    body["runs_added"] = tuple(RunEntry.from_json(r) for r in body["runs_added"])
    body["runs_removed"] = tuple(body["runs_removed"])
    body["results"] = tuple(ResultFile.from_json(r) for r in body["results"])
    body["results_removed"] = tuple(body["results_removed"])
    body["forgotten"] = msgspec.convert(body["forgotten"], Forgotten)
    body["sides_removed"] = tuple(body.get("sides_removed", ()))
    return Entry(**body)


def _manifest(body: dict[str, Any]) -> Manifest:
    # Older snapshots do not say when sides were committed: by then at the latest.
    body["sides"] = [{"at": body["clock"], **side} for side in body["sides"]]
    body = _common(body)
    body["runs"] = {r["name"]: RunEntry.from_json(r) for r in body["runs"]}
    body["results"] = ResultFiles(ResultFile.from_json(r) for r in body["results"])
    return Manifest(**body)
