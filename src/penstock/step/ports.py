"""What a step needs from outside: an executor of its tasks, a source of rows, sinks.

Spark is the first two (`spark/executor.py`, `spark/offset_log.py`). None of them commits anything: what an executor's
tasks have written exists once a manifest names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.planner.network import Network
from penstock.state.cursors import SinkCursor
from penstock.state.manifest import Manifest
from penstock.state.result_files import ResultFile
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


class Sinks(Protocol):
    """Receive committed results."""

    def deliver(self, manifest: Manifest) -> Mapping[str, SinkCursor]:
        """Deliver to every sink up to the manifest, as far as it accepts; returns how far each has come."""
        ...

    def owes(self, file: ResultFile) -> bool:
        """Whether a sink still needs rows of a file."""
        ...
