"""What happens to a run and becomes a step: rows come, time passes, queries begin with the rows that are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.state.manifest import Progress


@dataclass(frozen=True)
class Batch:
    """The source has handed over a batch. `identity` says what it reads; a step that is repeated has the same."""

    number: int
    identity: str


@dataclass(frozen=True)
class Tick:
    """No rows, but time: progress as known now, perhaps that of the last step. `final`: the streams have ended."""

    progress: Mapping[str, Progress]
    final: bool = False


@dataclass(frozen=True)
class TakeOver:
    """These queries begin from the state: they get the rows that are held, and the results among them."""

    queries: frozenset[int]


Event = Batch | Tick | TakeOver
