"""All that can happen to a run between two steps or as one; `loop` says what each leads to (decision 0038).

Whoever brings an event with an `outcome` waits for it. `events` has what of these becomes a step.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from penstock.state.registry import QueryRecord


@dataclass(frozen=True)
class BatchArrived:
    """Rows were handed over. The outcome is how many seconds to wait before the next batch."""

    rows: Any
    number: int
    outcome: Future[float] = field(default_factory=Future, compare=False)


@dataclass(frozen=True)
class ChangeAsked:
    """Declarations shall change as this function changes them, all or nothing."""

    change: Callable[[], None]
    outcome: Future[None] = field(default_factory=Future, compare=False)


@dataclass(frozen=True)
class AdvanceAsked:
    """No later row of the stream has a time below `to`."""

    stream: str
    to: int
    outcome: Future[None] = field(default_factory=Future, compare=False)


@dataclass(frozen=True)
class ResumeAsked:
    """A suspended query shall go on."""

    query: QueryRecord
    outcome: Future[None] = field(default_factory=Future, compare=False)


@dataclass(frozen=True)
class CleanUpAsked:
    """All probes that were put off shall be run."""

    outcome: Future[None] = field(default_factory=Future, compare=False)


@dataclass(frozen=True)
class StopAsked:
    """The run shall end; with `final` the streams have ended. Who asks waits for the end of the run."""

    final: bool = False


@dataclass(frozen=True)
class RequestFound:
    """Another process has left a request in the state directory."""

    key: str


@dataclass(frozen=True)
class TimePassed:
    """Some time has passed: streams may be silent, state may have expired, a sink that failed may be tried again."""


@dataclass(frozen=True)
class BatchesEnded:
    """No more batches come: all is read, or what hands them over has failed or was stopped by somebody else."""


@dataclass(frozen=True)
class ExecutorGone:
    """Nothing can run any more, because of `error`."""

    error: BaseException


Asked = ChangeAsked | AdvanceAsked | ResumeAsked | CleanUpAsked
Event = BatchArrived | Asked | StopAsked | RequestFound | TimePassed | BatchesEnded | ExecutorGone
