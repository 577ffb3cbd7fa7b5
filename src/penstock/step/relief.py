"""Relief under pressure: which buckets the next batch puts off, and owed probes that are paid when there is time.

What it remembers is not state: the record of a step says what is owed, and a new engine measures its load again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from penstock.model.time import FOREVER
from penstock.planner.decisions import Decided
from penstock.planner.deferral.loads import Load
from penstock.planner.deferral.overload import Overload, Parameters, Seen, after
from penstock.planner.deferral.selectors import SELECTORS
from penstock.planner.network import Network
from penstock.state.bucket_counters import together
from penstock.state.manifest import Entry, Manifest
from penstock.state.owed import Owed, numbers_in, oldest_step, ranges_of
from penstock.state.registry import Registry
from penstock.step.owing import Chosen, at_once, waited_for
from penstock.step.task import Reports


@dataclass
class Relief:
    """Puts off probes if `puts_off`, by `overload`; steps may take `allowed` seconds (inf: as long as they like).

    `portion` is the number of buckets that a clean-up pays at a time, which follows the time that it may take.
    """

    overload: Overload = field(default_factory=lambda: Overload(Parameters()))
    puts_off: bool = False
    allowed: Callable[[], float] = lambda: inf
    portion: int = 1
    _chosen: tuple[object, Chosen] | None = None

    def learn(
        self, network: Network, manifest: Manifest, entry: Entry, reports: Reports, seconds: float, buckets: int
    ) -> Entry:
        """The record of a batch that took that long, with the decision if more or less is put off from now on."""
        if not self.puts_off:
            return entry
        allowed = self.overload.parameters.seconds or self.allowed()
        seen = Seen(entry.step, seconds, allowed, loads_of(reports, buckets), reachable(network, manifest, entry))
        self.overload, decision = after(self.overload, seen)
        if decision is None:
            return entry
        return replace(entry, decisions=(*entry.decisions, Decided(entry.step, decision)))

    def chosen(self, network: Network, registry: Registry) -> Chosen:
        """What the next batch puts off."""
        put_off = self.overload.put_off
        place = (id(network), registry.version, put_off)
        if self._chosen is None or self._chosen[0] != place:
            ranges = ranges_of(put_off)
            spared = waited_for(network, registry) if ranges else frozenset()
            self._chosen = place, Chosen({table.name: ranges for table in network.tables} if ranges else {}, spared)
        return self._chosen[1]

    def due(self, owed: Sequence[Owed]) -> tuple[Owed, ...]:
        """What a clean-up pays next: all steps of a few buckets, the most productive ones first."""
        left = set().union(*(numbers_in(own.buckets) for own in owed))
        loads = self.overload.loads
        order = SELECTORS["most_productive"](loads, 0) if loads else sorted(left)
        first = set([bucket for bucket in order if bucket in left][: self.portion])
        parts = ((own, ranges_of(numbers_in(own.buckets) & first)) for own in owed)
        return at_once([_part(own, ranges) for own, ranges in parts if ranges])

    def paid(self, seconds: float, may: float) -> None:
        """A clean-up took that long, and might take `may`."""
        if seconds < may / 2:
            self.portion *= 2
        elif seconds > may:
            self.portion = max(1, self.portion // 2)

    def explained(self) -> list[str]:
        """For EXPLAIN."""
        if not self.puts_off:
            return []
        known = self.overload.parameters
        allowed = known.seconds or self.allowed()
        limit = "without a limit of time" if allowed == inf else f"steps may take {allowed:g} s"
        part = f"{len(self.overload.put_off)} of {len(self.overload.loads)} buckets"
        return [f"overload: defer by {known.selector}, {limit}; the probes of {part} are put off"]


def _part(own: Owed, ranges: tuple[tuple[int, int], ...]) -> Owed:
    return Owed(own.table, own.starts, ranges, own.first, own.last, own.since, own.held, own.without)


def loads_of(reports: Reports, buckets: int) -> tuple[Load, ...]:
    """What the tasks of a step counted, by bucket."""
    counted = together(stage for report in reports for stage in report.buckets)
    rows, probed, compared, results, written = (
        counted.of(name, buckets).tolist() for name in ("rows", "probed", "compared", "results", "written")
    )
    return tuple(
        Load(size=size, work=looked + pairs, made=pairs, inter=max(0, looked - new), output=found)
        for new, looked, pairs, found, size in zip(rows, probed, compared, results, written, strict=True)
    )


def reachable(network: Network, manifest: Manifest, entry: Entry) -> float:
    """The bytes of state that rows need if they keep coming at the rate of this step: rate by the longest life."""
    return sum(_needed(network, manifest, entry))


def _needed(network: Network, manifest: Manifest, entry: Entry) -> Iterator[float]:
    fresh: dict[str, int] = {}
    for run in entry.runs_added:
        if run.level == 0:
            fresh[run.table] = fresh.get(run.table, 0) + run.bytes
    for table in network.tables:
        was, now = (known.progress.get(table.stream) for known in (manifest, entry))
        life = max((own.life for own in table.entries), default=0)
        if table.name in fresh and was and now and now.newest > was.newest and life < FOREVER:
            yield fresh[table.name] * life / (now.newest - was.newest)


def owed_status(manifest: Manifest, put_off: int) -> dict[str, Any]:
    """What is owed: rows by the start of each join, since when; and how many buckets are put off now."""
    tables = manifest.counters.tables.values()
    steps = {step for own in manifest.owed for step in range(own.first, own.last + 1)}
    since = min((own.since for own in manifest.owed), default=None)
    return {
        "rows": sum(counts.deferred - counts.cleaned for counts in tables),
        "steps": len(steps),
        "first_step": oldest_step(manifest.owed),
        "seconds": None if since is None else round(max(0.0, time.time() - since), 3),
        "joins": sorted({join for own in manifest.owed for join, _ in own.starts}),
        "buckets_put_off": put_off,
    }
