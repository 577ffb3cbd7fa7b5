"""What a step needs of the world: something that runs its mappers and workers, and something that hands over rows.

Spark is both (`spark/executor.py`, `spark/offset_log.py`). Neither commits anything: what an executor's tasks have written exists once a
manifest names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.planner.network import Network
from penstock.state.manifest import Manifest
from penstock.step.layout import Layout
from penstock.step.taken import Taken
from penstock.step.task import Reports, Task


class Executor(Protocol):
    """Runs the tasks of steps, one step at a time."""

    def adopt(self, network: Network, layout: Layout, settings: Mapping[str, str]) -> None:
        """Run this network from the next step on, of whose streams those of the layout are read; expressions mean what they do under these settings."""
        ...

    def run(self, task: Task, batch: Any | None, fresh: Sequence[Taken]) -> tuple[Reports, float]:
        """Run mappers and workers over a batch as the source has handed it over (None: a step without rows), and over what derived streams have.

        The reports of all tasks, and the seconds that it took to plan the work. What fails is raised as an error of the step.
        """
        ...

    def take_over(self, task: Task) -> Reports:
        """Run the workers alone, for queries that take over the rows held."""
        ...


class Source(Protocol):
    """Hands over batches, which are numbered and can be repeated; what is said here of a batch does not depend on who asks."""

    def identity(self, batch: int) -> str:
        """What a batch reads, in a few letters: the same only if it reads the same rows."""
        ...

    def check_replay(self, manifest: Manifest, batch: int, identity: str) -> None:
        """Refuse a batch that was committed, if it comes again with other rows."""
        ...

    def durable_names(self, batch: int) -> list[str]:
        """The files of the source's own log that have to outlive whatever the manifest outlives, once it names the batch."""
        ...
