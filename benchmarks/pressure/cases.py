"""The cases of pressure by name; a job of a worker names its case."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.harness import Json
from benchmarks.pressure import balanced, cleanup, hot_key, overload
from benchmarks.pressure.case import Case

CASES: Mapping[str, Case] = {
    "balanced": balanced.CASE,
    "hot_key": hot_key.CASE,
    "cleanup": cleanup.CASE,
    "overload": overload.CASE,
}


def work(job: Json) -> Json:
    """A job of any case."""
    return CASES[job["case"]].work(job)
