"""The cases of pressure by name; a job of a worker names its case."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.harness import Json
from benchmarks.pressure import balanced, hot_key
from benchmarks.pressure.case import Case

CASES: Mapping[str, Case] = {"balanced": balanced.CASE, "hot_key": hot_key.CASE}


def work(job: Json) -> Json:
    """A job of any case."""
    return CASES[job["case"]].work(job)
