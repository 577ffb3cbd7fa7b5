"""A part of a query's results, by the steps that committed them and by their times.

The same part is tested on file names, in SQL and on single rows, so it defines itself what it includes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.model.time import FOREVER, NEVER
from penstock.sql.spelling import by_reference
from penstock.state.manifest import Manifest
from penstock.state.result_files import ResultFile


@dataclass(frozen=True)
class Part:
    """A part of a query's results: steps after `since` up to `until`, times from `horizon` on and before `before`."""

    since: int = -1
    until: int | None = None
    horizon: int = NEVER
    before: int = FOREVER

    def includes(self, step: int) -> bool:
        return step > self.since and (self.until is None or step <= self.until)

    def includes_each(self, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """The same for a column of steps."""
        return (steps > self.since) & (steps <= (FOREVER if self.until is None else self.until))

    def files(self, manifest: Manifest, query: int) -> list[ResultFile]:
        """The files of a query that may contain some of it."""
        after = NEVER if self.horizon == NEVER else self.horizon - 1
        return [file for file in manifest.results.of(query, since=self.since, after=after) if self.holds(file)]

    def holds(self, file: ResultFile) -> bool:
        return file.step > self.since and file.max_time >= self.horizon and file.min_time < self.before

    @property
    def steps(self) -> str:
        if self.until is None:
            return f"_step > {self.since}"
        return f"_step > {by_reference(self.since, '_step')} AND _step <= {by_reference(self.until, '_step')}"

    @property
    def times(self) -> str:
        return f"_time >= {self.horizon}L AND _time < {self.before}L"
