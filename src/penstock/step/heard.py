"""The progress of streams after a step: by its rows, by the clock, and of derived streams from their inputs.

What the clock needs to know of streams is not committed, and starts empty at every start. What it leads to is committed
with the step, and only then used (decision 0005).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.model.time import NEVER, SECOND
from penstock.planner.network import Network
from penstock.state.manifest import Manifest, Progress
from penstock.state.progress import move, together
from penstock.step import derived
from penstock.step.idle import follow_clock
from penstock.step.task import Reports

MANY_GROUPS = 100_000  # punctuations of groups that every step can read without being slow
_MANY = (
    "stream {!r} has more than {:,} groups whose punctuations are ahead of the stream itself; every step looks at"
    " all of them, and the stream's own progress forgets those that it has passed: let punctuations of the whole"
    " stream follow, or give it a delay"
)

Moved = tuple[dict[str, Progress], list[str]]  # progress, and warnings


@dataclass(frozen=True)
class Heard:
    """Knowledge of the streams beside their progress; times are those of the engine's clock, in seconds.

    `read` are the streams that come from the source: derived ones follow these, not the other way round. `last_rows` is
    when each stream last had rows, `held` are the throttled ones. `follows_clock`: whether event time may be compared
    with the clock, not while only present input is read. `planned_before`: the next batch may have been planned before
    the source was started.
    """

    started: float
    read: tuple[str, ...] = ()
    last_rows: Mapping[str, float] = field(default_factory=dict)
    follows_clock: bool = True
    planned_before: bool = True
    held: frozenset[str] = frozenset()

    def after(self, reports: Reports, now: float) -> Heard:
        """The knowledge after a batch that was committed at this time."""
        came = {name for report in reports for name, counts in report.counters.streams.items() if counts.rows}
        return replace(self, last_rows={**self.last_rows, **dict.fromkeys(came, now)}, planned_before=False)

    def hold(self, held: frozenset[str], now: float) -> Heard:
        """These streams are throttled from now on. One that is read again was not idle by itself."""
        return replace(self, held=held, last_rows={**self.last_rows, **dict.fromkeys(self.held - held, now)})


def by_clock(
    network: Network, heard: Heard, progress: Mapping[str, Progress], names: Iterable[str], now: float
) -> Moved:
    """Progress with that of these streams by the clock; not of throttled ones, nor while only present input is read."""
    if not heard.follows_clock:
        return dict(progress), []
    streams = [network.streams[n] for n in names if n in network.streams and n not in heard.held]
    known = {name: p for name, p in progress.items() if name in heard.read}
    moved, warnings = follow_clock(streams, known, now, heard.last_rows, heard.started)
    return {**progress, **moved}, warnings


def after_rows(network: Network, manifest: Manifest, reports: Reports, clock: int | None) -> Moved:
    """Progress by the rows of a step; `clock` is that of its begin, if it applies."""
    moved, warnings = dict(manifest.progress), []
    for name, stream in network.streams.items():
        parts = [part for report in reports for part in report.saw.get(name, ())]
        if parts:
            after = move(stream, moved.get(name, Progress(NEVER, NEVER)), together(parts, stream.delay_rows), clock)
            if after != Progress(NEVER, NEVER, grown=()):
                moved[name] = after
            if len(after.closed) > MANY_GROUPS:
                warnings.append(_MANY.format(name, MANY_GROUPS))
    return moved, warnings


def after_batch(network: Network, manifest: Manifest, heard: Heard, reports: Reports, began: float) -> Moved:
    """Progress after a batch; `began` is the clock of its begin: later arrivals are not read yet."""
    timely = heard.follows_clock and not heard.planned_before
    moved, warnings = after_rows(network, manifest, reports, int(began * SECOND) if timely else None)
    # A batch without rows of a stream shows that none of it waited when the batch was planned.
    silent = _silent(heard.read, reports) if timely else []
    moved, more = by_clock(network, heard, moved, silent, began)
    return {**moved, **derived.moved(network, manifest, moved)}, warnings + more


def after_taking_in(
    network: Network, manifest: Manifest, reports: Reports, progress: Mapping[str, Progress]
) -> dict[str, Progress]:
    """Progress after a step without a batch, with that of derived streams, of which it has read all results so far."""
    moved, _ = after_rows(network, manifest, reports, None)
    moved |= derived.moved(network, manifest, moved)
    return {**progress, **{d.name: moved[d.name] for d in network.derived_streams if d.name in moved}}


def _silent(read: Sequence[str], reports: Reports) -> list[str]:
    return [n for n in read if not any(report.counters.stream(n).rows for report in reports)]
