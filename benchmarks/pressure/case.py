"""What a case of pressure is: how it is measured, what its workers do, and what it found."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from benchmarks.harness import Json


@dataclass(frozen=True)
class Outcome:
    """Ratios require equal results; more is better, except for those named in `lower`."""

    equal: bool
    ratios: Mapping[str, float]
    figures: Json = field(default_factory=dict)
    lower: Collection[str] = ()


@dataclass(frozen=True)
class Case:
    """`measure` has the options of the command line; `work` does a job of it in a process of its own."""

    measure: Callable[[Namespace], Outcome]
    work: Callable[[Json], Json]
