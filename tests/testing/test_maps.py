"""Answers do not depend on which task serves which bucket, nor on which tasks share one: random maps in each step.

Scenarios have such maps too; here every way of a lookup is forced: exchanges of composites, whole tables, scans.
"""

import random
from collections import Counter
from functools import partial
from unittest.mock import patch

import pytest

from penstock.catalog.choices import Choices
from penstock.model import Column, Stream
from penstock.state.balance.costs import Prices, costs_of
from penstock.state.balance.decision import Parameters
from penstock.testing.engine import Engine
from penstock.testing.executor import Manner, random_map
from tests.effort import examples

COLUMNS = (Column("t", "bigint"), Column("k", "bigint"), Column("l", "bigint"), Column("v", "bigint"))
STREAMS = [Stream(name, COLUMNS, "t", delay=2) for name in "abc"]
QUERIES = {
    "two": "SELECT x.v, y.v AS w FROM a [RANGE 9] x, b [RANGE 5] y WHERE x.k = y.k",
    "itself": "SELECT x.v, y.v AS w FROM a [RANGE 9] x, a [RANGE 5] y WHERE x.k = y.k",
    "three": "SELECT x.v, y.v AS w, z.v AS u FROM a [RANGE 5] x, b [RANGE 4] y, c [RANGE 6] z "
    "WHERE x.k = y.k AND y.k = z.k",
    "classes": "SELECT x.v, y.v AS w, z.v AS u FROM a [RANGE 5] x, b [RANGE 4] y, c [RANGE 6] z "
    "WHERE x.k = y.k AND y.l = z.l",
    "cycle": "SELECT x.v, y.v AS w, z.v AS u FROM a [RANGE 5] x, a [RANGE 4] y, c [RANGE 6] z "
    "WHERE x.k = y.k AND y.l = z.l AND x.v = z.v",
    "unequal": "SELECT x.v, y.v AS w FROM a [RANGE 4] x, b [RANGE 3] y WHERE x.v < y.v - 5",
    "partly": "SELECT x.v, y.v AS w, z.v AS u FROM a [RANGE 4] x, b [RANGE 3] y, c [RANGE 3] z "
    "WHERE x.k = y.k AND y.v < z.v - 5",
    "last": "SELECT x.v, y.v AS w FROM a [ROWS 9] x, b [RANGE 5] y WHERE x.k = y.k",
    "groups": "SELECT k, window_end, count(*) AS n, sum(v) AS s FROM a [RANGE 6 SLIDE 3] GROUP BY k",
    "above": "SELECT x.k, count(*) AS n FROM a [RANGE 6 SLIDE 3] x, b [RANGE 6 SLIDE 3] y WHERE x.k = y.k GROUP BY x.k",
    "filter": "SELECT v FROM c WHERE v > 3",
}
EXCHANGES = {"moved": 0.0, "whole": 1e18}  # the price of an exchange decides


def answers(seed, manner, tasks, choices, buckets=8):
    """The results of all queries over random rows with few keys, of which another one is hot after some steps."""
    chance = random.Random(seed)
    with patch("penstock.state.registry.BUCKETS", buckets):
        engine = Engine(tasks=tasks, manner=manner, chance=random.Random(seed + 1), choices=choices)
        for stream in STREAMS:
            engine.stream(stream)
        for name, sql in QUERIES.items():
            engine.query(sql, name=name)
        engine.start()
        for number in range(7):
            keys = (1 + number // 2, 1 + number // 2, 1, 2, 3, None)
            columns = {}
            for name in "abc":
                columns[name] = [
                    {
                        "t": 3 * number + chance.randrange(4),
                        "k": chance.choice(keys),
                        "l": chance.choice((4, 4, 5)),
                        "v": chance.randrange(12),
                    }
                    for _ in range(chance.choice((0, 4, 12)))
                ]
            engine.take(**columns)
        engine.stop(final=True)
        return {name: Counter(engine.results(name)) for name in QUERIES}, engine


@pytest.mark.parametrize("way", EXCHANGES)
@pytest.mark.parametrize("mappers", [0, 2])
def test_each_result_is_found_once_with_any_map(way, mappers):
    off = Choices(balance="off")
    with patch("penstock.planner.steering.EXCHANGE", EXCHANGES[way]):
        for seed in range(examples(9)):
            alone, _ = answers(seed, Manner(mappers=0), 1, off)
            assert all(alone.values())
            manner = Manner(mappers=mappers, shuffled=True, retried=0.1, maps=True)
            found, _ = answers(seed, manner, 2 + seed % 3, off)
            for name, wanted in alone.items():
                assert found[name] == wanted, (name, seed)


@pytest.mark.parametrize("policy", ["weighted", "pairwise"])
def test_each_result_is_found_once_while_a_policy_moves_and_splits_buckets(policy):
    known = Parameters(theta_r=1.0, tau_m=1e-9, least=1e-12)
    alone, _ = answers(3, Manner(mappers=0), 1, Choices(balance="off"))
    cheap = partial(costs_of, prices=Prices(row=1e-9))  # then probes are what is worth sharing
    with patch("penstock.step.balancing.costs_of", cheap):
        found, engine = answers(3, Manner(), 3, Choices(balance=policy, balancing=known))
    assert found == alone
    changes = [d for d in engine.manifest.decisions if type(d.decision).__name__ == "Balanced"]
    assert any(d.decision.action == "changed" for d in changes)
    assert policy == "pairwise" or any(d.decision.split for d in changes)


def test_random_maps_have_split_and_whole_buckets_and_idle_tasks():
    found = [random_map(random.Random(seed), 3, 8) for seed in range(60)]
    assert any(not of.splits for of in found)
    assert any(len(of.splits) == 4 for of in found)
    assert any(len(set(of.starts)) < 3 for of in found)
