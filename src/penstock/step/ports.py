"""What a step needs of the world: who runs its tasks, who hands over rows, who gets results.

Spark is the first two (`spark/executor.py`, `spark/offset_log.py`). None of them commits anything: what an executor's
tasks have written exists once a manifest names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.planner.network import Network
from penstock.state.manifest import Manifest
from penstock.state.result_files import ResultFile
from penstock.step.layout import Layout
from penstock.step.taken import Taken
from penstock.step.task import Reports, Task


class Executor(Protocol):
    """Runs the tasks of steps, one step at a time."""

    def adopt(self, network: Network, layout: Layout, settings: Mapping[str, str]) -> None:
        """Run this network from the next step on; the source reads the streams of the layout.

        Expressions mean what they do under these settings.
        """
        ...

    def run(self, task: Task, batch: Any | None, fresh: Sequence[Taken]) -> tuple[Reports, float]:
        """Run mappers and workers over a batch as it is handed over (None: no rows) and what derived streams have.

        The reports of all tasks, and the seconds that it took to plan the work. What fails is raised as an error of the
        step.
        """
        ...

    def take_over(self, task: Task) -> Reports:
        """Run the workers alone, for queries that take over the rows held."""
        ...


class Source(Protocol):
    """Hands over batches, which have numbers and can be repeated: what is said of one is always the same."""

    def identity(self, batch: int) -> str:
        """What a batch reads, in a few letters: the same only if it reads the same rows."""
        ...

    def check_replay(self, manifest: Manifest, batch: int, identity: str) -> None:
        """Refuse a batch that was committed, if it comes again with other rows."""
        ...

    def durable_names(self, batch: int) -> list[str]:
        """The files of the source's own log that must not be lost once the manifest names the batch."""
        ...


class Sinks(Protocol):
    """Get the results that are committed."""

    def deliver(self, manifest: Manifest) -> Mapping[str, int]:
        """Bring every sink up to the manifest, as far as it lets us; how far each has come."""
        ...

    def owes(self, file: ResultFile) -> bool:
        """Whether a sink has yet to get rows of a file."""
        ...
