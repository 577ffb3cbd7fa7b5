"""How far the streams have come after a step: by what its rows said, by the clock, and for derived streams by what they are made of.

The driver keeps here what the clock needs to know of streams. What it finds is committed with the step's manifest and only then used.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.model.time import NEVER, SECOND
from penstock.planner.network import Network
from penstock.state.manifest import Manifest, Progress
from penstock.state.progress import move, together
from penstock.step import derived
from penstock.step.idle import follow_clock
from penstock.step.task import Reports

MANY_GROUPS = 100_000  # punctuations of groups that every step can look at without being slow
_MANY = (
    "stream {!r} has more than {:,} groups whose punctuations are ahead of the stream itself; every step looks at all of them, and the"
    " stream's own progress forgets those that it has passed: let punctuations of the whole stream follow, or give it a delay"
)


@dataclass
class Tracker:
    """What is known of the streams beside their progress; times are those of the engine's clock."""

    started: float = field(default_factory=time.time)  # of the engine
    began: float = field(default_factory=time.time)  # of the step that runs
    last_rows: dict[str, float] = field(default_factory=dict)  # when the stream last had rows
    follows_clock: bool = True  # whether event time may be compared with it; not while only present input is read
    planned_before: bool = True  # the next batch may have been planned before Spark's query began
    held: frozenset[str] = frozenset()  # streams of which nothing is read for now
    warnings: list[str] = field(default_factory=list)

    def lulls(
        self, network: Network, read: Sequence[str], progress: Mapping[str, Progress], names: Iterable[str], now: float
    ) -> dict[str, Progress]:
        """Progress with that of these streams by the clock: of none while one is not read, or while only present input is.

        `read` are the streams that Spark reads: what is derived follows these, and not the other way round.
        """
        if not self.follows_clock:
            return dict(progress)
        streams = [network.streams[n] for n in names if n in network.streams and n not in self.held]
        known = {name: p for name, p in progress.items() if name in read}
        moved, warnings = follow_clock(streams, known, now, self.last_rows, self.started)
        for warning in warnings:
            self._warn(warning)
        return {**progress, **moved}

    def moved(self, network: Network, read: Sequence[str], manifest: Manifest, reports: Reports) -> dict[str, Progress]:
        """Progress after the step."""
        # The clock at the beginning: what arrived while the step ran is yet to be read.
        timely = self.follows_clock and not self.planned_before
        clock = int(self.began * SECOND) if timely else None
        moved = dict(manifest.progress)
        for name, stream in network.streams.items():
            parts = [part for report in reports for part in report.saw.get(name, ())]
            if parts:
                old = moved.get(name, Progress(NEVER, NEVER))
                after = move(stream, old, together(parts, stream.delay_rows), clock)
                if after != Progress(NEVER, NEVER, grown=()):
                    moved[name] = after
                if len(after.closed) > MANY_GROUPS:
                    self._warn(_MANY.format(name, MANY_GROUPS))
        # A batch without rows of a stream shows that nothing of it waited when the batch was planned.
        silent = [n for n in read if not any(report.counters.stream(n).rows for report in reports)]
        moved = self.lulls(network, read, moved, silent if timely else [], self.began)
        return {**moved, **derived.moved(network, manifest, moved)}

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def came(self, reports: Reports, now: float) -> None:
        """Note which streams had rows in a step."""
        for report in reports:
            self.last_rows.update((name, now) for name, c in report.counters.streams.items() if c.rows)
