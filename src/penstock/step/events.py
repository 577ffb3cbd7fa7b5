"""Events of a run that become steps: rows come, time passes, queries begin from stored rows, owed probes are run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.state.manifest import Progress
from penstock.state.owed import Owed


@dataclass(frozen=True)
class Batch:
    """The source has handed over a batch. `identity` identifies its content; a repeated step has the same."""

    number: int
    identity: str


@dataclass(frozen=True)
class Tick:
    """No rows, but time: progress as known now, perhaps that of the last step. `final`: the streams have ended."""

    progress: Mapping[str, Progress]
    final: bool = False


@dataclass(frozen=True)
class TakeOver:
    """These queries begin from state: they get the stored rows, and the results among them."""

    queries: frozenset[int]


@dataclass(frozen=True)
class CleanUp:
    """No rows, but time for probes that were put off: these parts of what is owed."""

    owed: tuple[Owed, ...]


Event = Batch | Tick | TakeOver | CleanUp
