"""What the queries of an engine gave out, and what was held for them, step by step: for the monitors.

Every manifest that was committed meanwhile is looked at, those of ticks too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from penstock import Engine
from penstock.errors import ResultsError
from penstock.model import Ref, SlidingRows
from penstock.model.expression import PSEUDO_ROLE, RESULT_TIME, WINDOW_END
from penstock.model.time import FOREVER
from penstock.planner.reached import as_answered, output_progress
from penstock.results.views import results_table
from penstock.state.manifest import Manifest
from tests.monitors import check_progress
from tests.spark.replay import rows_of, values_of

Answer = list[tuple[Any, ...]]


@contextmanager
def committed() -> Iterator[dict[int, Manifest]]:
    """The manifests that are committed meanwhile, by step."""
    found, apply = {}, Manifest.apply

    def noting(manifest, entry):
        after = apply(manifest, entry)
        found[after.step] = after
        return after

    with patch.object(Manifest, "apply", noting):
        yield found


def answers(engine: Engine, names: Iterable[str]) -> dict[str, Answer]:
    """What queries have answered, each row with its step, read once at the end. Without Spark it is the same."""
    found = {name: rows_of(engine.results(name, step=True)) for name in names}
    for name, rows in found.items():
        with suppress(ResultsError):
            table = results_table(engine.catalog, name, engine.manifest())
            assert Counter(map(repr, values_of(table))) == Counter(map(repr, without_steps(rows))), name
    return found


def without_steps(answer: Answer) -> Answer:
    return [row[:-1] for row in answer]


def monitor(engine: Engine, manifests: Mapping[int, Manifest], found: Mapping[str, Answer], **times: int) -> int:
    """Check every query that selects its result time; returns how many do. `times` = others' time columns, by name.

    What a query gives out never lies behind the progress that it has stated, which never falls. And no run outlives, by
    more than the step that could let it go, the last row in it that somebody can reach.
    """
    network, steps, seen = engine.network(), sorted(manifests), 0
    joins = {derived.query for derived in network.derived_streams if derived.joined}  # which only an aggregate reads
    for standing in network.queries:
        own = [n for n, item in enumerate(standing.query.items) if item.expression.parts in _TIMES]
        place = times.get(standing.name, own[0] if own else None)
        if place is None or standing.id in joins:
            continue
        progress = {s: as_answered(manifests[s].reached(), standing.id) for s in steps}
        stated = {step: output_progress(standing.query, progress[step]) for step in steps}
        ends: dict[int, list[int]] = {step: [] for step in steps}
        aggregation = standing.query.aggregation
        ranked = aggregation is not None and isinstance(aggregation.window, SlidingRows)
        for row in found[standing.name]:
            # The end of a stream cuts its last windows of rows short.
            if not (ranked and stated[row[-1]] >= FOREVER):
                ends[row[-1]].append(row[place])
        try:
            check_progress([(ends[step], stated[step]) for step in steps])
        except AssertionError as error:
            error.add_note(f"query {standing.name}: {standing.query.sql}")
            raise
        seen += 1
    for before, step in pairwise(steps):
        reached = manifests[before].reached()
        stale = [run for run in manifests[step].runs.values() if run.step < step and run.expired(reached)]
        assert not stale, f"step {step} has kept {stale[0]}"
    return seen


_TIMES = ((Ref(PSEUDO_ROLE, RESULT_TIME),), (Ref(PSEUDO_ROLE, WINDOW_END),))
