"""What a scenario decides of the engine besides its events: intervals of periodic work, and what is put off."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from msgspec import structs

from penstock.planner.network import Network
from penstock.state.manifest import Manifest
from penstock.state.owed import Owed, numbers_in, ranges_of
from penstock.state.tiers import Tiers
from penstock.step.owing import Chosen
from penstock.step.stepper import Stepper
from penstock.testing.model import parsed_once
from penstock.testing.scenario import Options


@contextmanager
def constants(options: Options) -> Iterator[None]:
    """Intervals of the engine's periodic work."""
    with ExitStack() as stack:
        for name, value in {
            "penstock.state.compaction.FAN_IN": options.fan_in,
            "penstock.state.registry.BUCKETS": options.buckets,
            "penstock.state.manifest.SNAPSHOT_EVERY": options.snapshots,
            "penstock.results.retention.UPKEEP_EVERY": options.upkeep,
            "penstock.results.retention.FIRST_UPKEEP": min(options.upkeep, 7),
            "penstock.results.retention.MANY_FILES": 2 if options.upkeep < 7 else 64,
            "penstock.results.delivery.FIRST_RETRY": 0.0,
            "penstock.kernels.walk.LEAST_PAIRS": 1,
            "penstock.kernels.streamed.COLD_BLOCK": 1 << 8,
            "penstock.state.tiers.EVERY": 2,
            "penstock.catalog.compiled.parse_query": parsed_once,
            "penstock.catalog.check_query.parse_query": parsed_once,
        }.items():
            stack.enter_context(patch(name, value))
        if options.cold >= 0:
            stack.enter_context(patch("penstock.step.stepper.choose_tiers", partial(_at_random, options.cold)))
        yield


def _at_random(share: float, tiers: Tiers, network: Network, manifest: Manifest, hot: int) -> Tiers:  # noqa: ARG001
    """Tiers that nobody would choose: answers do not depend on them."""
    chance = random.Random(manifest.step)
    ages = ((table.name, age) for table in network.tables for age in range(64))
    return replace(tiers, cold=frozenset(age for age in ages if chance.random() < share))


def some_buckets(chance: random.Random, share: float, stepper: Stepper) -> Chosen:
    """For each state table about this share of its buckets, or none."""
    count = stepper.registry.buckets
    tables = [t.name for t in stepper.network.tables] if share else []
    return Chosen({name: ranges_of([b for b in range(count) if chance.random() < share]) for name in tables})


def some_owed(chance: random.Random, share: float, owed: Sequence[Owed]) -> tuple[Owed, ...]:
    """Parts of what is owed: some steps of some entries, and some of their buckets."""
    found = []
    for own in owed:
        buckets = ranges_of([b for b in sorted(numbers_in(own.buckets)) if chance.random() < share])
        first = chance.randint(own.first, own.last) if chance.random() < 0.5 else own.first
        if buckets and chance.random() < 0.8:
            found.append(structs.replace(own, first=first, last=chance.randint(first, own.last), buckets=buckets))
    chance.shuffle(found)
    return tuple(found)
