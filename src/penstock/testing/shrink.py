"""Shrinks a failing scenario to what its failure needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from penstock.testing.runner import Story
from penstock.testing.scenario import Add, Batch, Drop, Event, Options, Scenario, SinkFails

Thing = TypeVar("Thing")
Fails = Callable[[Scenario], bool]


def failure(scenario: Scenario) -> str | None:
    """The failure of a scenario, in a line; None if there is none."""
    try:
        Story(scenario).tell()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is what is looked for)
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def shrunk(scenario: Scenario, fails: Fails | None = None) -> Scenario:
    """A scenario with the same failure, and fewer queries, events, rows and options; `scenario` if it does not fail."""
    if fails is None:
        first = failure(scenario)
        kind = None if first is None else first.partition(":")[0]

        def fails(other: Scenario) -> bool:
            found = failure(other)
            return found is not None and found.partition(":")[0] == kind

        if first is None:
            return scenario
    while (smaller := next((s for s in _smaller(scenario) if fails(s)), None)) is not None:
        scenario = smaller
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario without something, from much to little."""
    for query in scenario.queries:
        yield replace(scenario, events=tuple(e for e in scenario.events if not _concerns(e, query.name)))
    for kept in _without(scenario.events):
        yield replace(scenario, events=tuple(kept))
    plain = Options()
    for option in fields(Options):
        if getattr(scenario.options, option.name) != getattr(plain, option.name):
            yield replace(scenario, options=replace(scenario.options, **{option.name: getattr(plain, option.name)}))
    for place, event in enumerate(scenario.events):
        if isinstance(event, Batch):
            for name, rows in event.rows.items():
                for own in _without(rows):
                    less = Batch({**event.rows, name: tuple(own)})
                    yield replace(scenario, events=(*scenario.events[:place], less, *scenario.events[place + 1 :]))


def _concerns(event: Event, query: str) -> bool:
    match event:
        case Add(name, sql):
            return name == query or re.search(rf"\b{query}\b", sql) is not None
        case Drop(name) | SinkFails(name):
            return name == query
    return False


def _without(things: Sequence[Thing]) -> Iterator[list[Thing]]:
    """The things without a contiguous part: first half of them, in the end single ones."""
    size = max(1, len(things) // 2)
    while things:
        for start in range(0, len(things), size):
            yield [*things[:start], *things[start + size :]]
        if size == 1:
            return
        size //= 2
