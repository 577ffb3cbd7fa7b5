"""What steps and the run around them need from outside: an executor of tasks, rows, sinks, requests.

Spark is the executor, the source and what hands over its batches (`spark/executor.py`, `spark/offset_log.py`,
`spark/batches.py`). None of them commits anything: what an executor's tasks have written exists once a manifest names
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.catalog.requests import Answer
from penstock.planner.network import Network
from penstock.state.cursors import SinkCursor
from penstock.state.manifest import Manifest
from penstock.state.result_files import ResultFile
from penstock.step.happened import BatchArrived
from penstock.step.layout import Layout
from penstock.step.taken import Taken
from penstock.step.task import Reports, Task


class Executor(Protocol):
    """Runs the tasks of steps, one step at a time."""

    def adopt(self, network: Network, layout: Layout, settings: Mapping[str, str]) -> None:
        """Run this network from the next step on; the source reads the streams of the layout.

        Expressions depend on these settings.
        """
        ...

    def run(self, task: Task, batch: Any | None, fresh: Sequence[Taken]) -> tuple[Reports, float]:
        """Run mappers and workers over a batch (None: no rows) and the rows of derived streams.

        Returns the reports of all tasks, and the seconds to plan the work. Failures are raised as errors of the step.
        """
        ...

    def take_over(self, task: Task) -> Reports:
        """Run only the workers, over stored rows: queries take these over, or owed probes are run."""
        ...


class Source(Protocol):
    """Hands over batches, which have numbers and are repeatable: what is reported of one is always the same."""

    def check_start(self, manifest: Manifest) -> None:
        """Reject a start on a state with this last batch, if the source could lose or repeat rows behind it.

        It is asked again if the state changes before this owner has made its first step.
        """
        ...

    def identity(self, batch: int) -> str:
        """A short text that identifies the rows of a batch."""
        ...

    def check_replay(self, manifest: Manifest, batch: int, identity: str) -> None:
        """Refuse a committed batch if it comes again with other rows."""
        ...

    def make_durable(self, batch: int) -> None:
        """Make what the source's own log says of a batch durable, since the manifest will name the batch."""
        ...


class Batches(Protocol):
    """Hands over the batches of a source, one after another, as events of a run, and waits for the outcome of each."""

    @property
    def held(self) -> frozenset[str]:
        """The streams that are not read, until others have caught up with them."""
        ...

    @property
    def admitted(self) -> Mapping[str, str | None]:
        """What limits a batch, by stream; None if a batch reads everything that is there. Empty before the first."""
        ...

    def start(self, layout: Layout) -> None:
        """Read the declared streams as this layout says, from where the last batch has ended."""
        ...

    def stop(self) -> None:
        """Hand over nothing more. No batch may be waiting: `Inbox.refuse_batches` comes first."""
        ...

    @property
    def active(self) -> bool:
        """Whether more batches may come."""
        ...

    def failure(self) -> BaseException | None:
        """Why they have ended; None if all is read, or somebody has stopped them."""
        ...

    def gone(self, step: int) -> BaseException | None:
        """Why nothing can run any more, after this step; None if it can."""
        ...

    def abandon(self) -> None:
        """Let go of what cannot be stopped, since it is gone."""
        ...

    def lacking(self, before: Network, after: Network, layout: Layout) -> Mapping[str, Sequence[str]] | None:
        """If streams must be read in another way after a change: the columns that this layout lacks, by stream."""
        ...

    def revert(self) -> None:
        """The streams are declared as they are read: a change was refused."""
        ...

    def unread(self) -> bool:
        """Whether there may be rows that no step has taken yet."""
        ...

    def looked(self) -> float:
        """The clock up to which all rows that came were seen."""
        ...

    def hold(self, streams: frozenset[str]) -> None:
        """Read nothing of these streams from the next batch on, as far as that is possible, and all others."""
        ...

    def begin(self, batch: BatchArrived) -> None:
        """A step over this batch begins on this thread: what it runs belongs to the batch."""
        ...

    def turn(self, batch: BatchArrived, rows: int) -> float:
        """The step is over; returns how many seconds to wait before the next batch."""
        ...

    def leave(self) -> None:
        """What this thread runs from now on belongs to no batch."""
        ...


class Requests(Protocol):
    """What other processes ask of a run."""

    def waiting(self) -> Sequence[str]:
        """Those that were not answered yet, in order."""
        ...

    def do(self, key: str) -> Answer:
        """Execute one, whatever it asks for; returns its outcome."""
        ...

    def answer(self, key: str, answer: Answer) -> None:
        """Answer one; it is never taken again."""
        ...


class Sinks(Protocol):
    """Receive committed results."""

    def deliver(self, manifest: Manifest) -> Mapping[str, SinkCursor]:
        """Deliver to every sink up to the manifest, as far as it accepts; returns how far each has come."""
        ...

    def owes(self, file: ResultFile) -> bool:
        """Whether a sink still needs rows of a file."""
        ...
