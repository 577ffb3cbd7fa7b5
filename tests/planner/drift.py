"""Four streams on one key, of which two change places half way: what an engine would count of it, without one.

Simulated are the counts of composites (their expectation, with the scatter of counts) and the runs of each step with
their times. What turns these into statistics, orders and routes is the planner itself.
"""

import random
from dataclasses import dataclass
from functools import cache
from itertools import count
from math import exp

from penstock.model import Column, Stream
from penstock.model.time import SECOND
from penstock.planner.build import build_network
from penstock.planner.counters import Counters, JoinCounters, bits_of
from penstock.planner.network import StandingQuery
from penstock.planner.orders.decision import Parameters
from penstock.planner.orders.mode import ModeState
from penstock.planner.steering import Steering
from penstock.sql import parse_query
from tests.recorded import recorded
from tests.state.runs import entry_of

NAMES = "abcd"
ROWS, LIFE, DELAY = 8000, 4, 1
MANY, SOME, FEW = 60.0, 4.0, 0.02  # rows of a key in a window
CHECK = 1 / 256  # seconds of a check; differences of its multiples are exact
KEYS = ROWS * LIFE / MANY
RARE_C = {0: (2, 3, 1), 1: (2, 3, 0), 2: (3, 0, 1), 3: (2, 0, 1)}
RARE_B = {0: (1, 3, 2), 1: (3, 0, 2), 2: (1, 3, 0), 3: (1, 0, 2)}
FIXED = {"rare c": RARE_C, "rare b": RARE_B}
STREAMS = {n: Stream(n, (Column("ts", "timestamp"), Column("k", "bigint")), "ts", DELAY * SECOND) for n in NAMES}


@cache
def network():
    roles = ", ".join(f"{n} [RANGE {LIFE} SECONDS]" for n in NAMES)
    sql = f"SELECT a.k FROM {roles} WHERE " + " AND ".join(f"a.k = {n}.k" for n in NAMES[1:])
    return build_network([StandingQuery(1, "q", parse_query(sql, STREAMS))], STREAMS)


@cache
def drawn(share, seed):
    """The random number of a step's rows of a kind with this share; few by Poisson, many by the normal distribution."""
    chance, mean = random.Random(seed), ROWS * share
    if mean > 50:
        return round(chance.gauss(mean, (mean * (1 - share)) ** 0.5))
    count, left = 0, chance.random()
    while left > exp(-mean):
        count, left = count + 1, left * chance.random()
    return count


@dataclass(frozen=True)
class Drift:
    """`files` steps of a second each; in the second half, b is the stream with few partners, not c.

    With `gap`, the halves lie so far apart that no row of one meets a row of the other. Of the stream with few
    partners, a step has two or three rows that meet anybody, and now and then none.
    """

    files: int = 40
    drifts: bool = True
    gap: bool = True
    seed: int = 0

    def swapped(self, step):
        return self.drifts and step >= self.files // 2

    def second(self, step):
        return step + (LIFE + DELAY + 1) * (self.gap and self.swapped(step))

    def partners(self, position, step):
        """Rows of a stream's step that have a key that other streams have too."""
        rare = 1 if self.swapped(step) else 2
        share = {rare: FEW, 3: SOME}.get(position, MANY) / MANY
        return drawn(share, f"{self.seed} {position} {step}")

    def met(self, start, position, step):
        """Rows with such keys at a position that a row of the start meets: of this step only at earlier positions."""
        ages = {old: self.second(step) - self.second(old) for old in range(step)}
        shares = {old: 1.0 if age < LIFE else 0.5 if age == LIFE else 0.0 for old, age in ages.items()}
        fresh = self.partners(position, step) if position < start else 0.0
        return fresh + sum(share * self.partners(position, old) for old, share in shares.items())

    def runs(self, step):
        first = self.second(step) * SECOND
        life = LIFE * SECOND
        return [
            entry_of(f"{n}{step}", table=f"{n}(k)", rows=ROWS, life=life, min_time=first, max_time=first + SECOND - 1)
            for n in NAMES
        ]

    def old(self, step):
        """Runs are dropped when progress has passed them, which is some steps after no new row meets them."""
        progress = (self.second(step - 1) + 1 - DELAY) * SECOND if step else 0
        runs = [run for old in range(step) for run in self.runs(old)]
        return [run for run in runs if run.max_time + run.life > progress]

    def counters(self, flows):
        return Counters(joins={network().joins[0].name: JoinCounters(flows)})

    def counts(self, step, orders, chance):
        """The composites of each start and set, and the work: rows looked up and composites made."""
        flows, work = {start: {bits_of((start,)): ROWS} for start in orders}, 0
        for start, order in orders.items():
            expected, looked_up = self.partners(start, step), ROWS
            for k, position in enumerate(order):
                expected *= self.met(start, position, step) / KEYS
                made = max(0, round(chance.gauss(expected, expected**0.5)))
                flows[start][bits_of((start, *order[: k + 1]))] = made
                work += looked_up + made
                looked_up = made
        return flows, work


def steered(drift, stored=None, periods=1):
    clock = (CHECK * n for n in count()).__next__  # a check takes from one look at it to the next
    parameters = Parameters(period=periods * len(NAMES) * ROWS, seed=drift.seed)
    return Steering(network(), "adaptive", parameters, stored=stored, clock=clock)


@cache
def lived(drift, fixed=None):
    """The work of each step, and the steps after which orders changed; adaptive, or with fixed orders by name."""
    fixed, steering = FIXED.get(fixed), steered(drift)
    chance, work, changes = random.Random(drift.seed), [], []
    for step in range(drift.files):
        flows, done = drift.counts(step, fixed or steering.modes[0].orders, chance)
        work.append(done)
        if fixed is None:
            decisions = steering.observe(drift.counters(flows), Counters(), drift.old(step), drift.runs(step))
            changes += [step] * any(d.changed for d in decisions)
    return work, changes


def decided(drift, periods, restarts):
    """All decisions, with a check every so many steps; with `restarts`, a step knows only the stored state."""
    steering, chance, found = steered(drift, periods=periods), random.Random(drift.seed), []
    for step in range(drift.files):
        flows, _ = drift.counts(step, steering.modes[0].orders, chance)
        found += steering.observe(drift.counters(flows), Counters(), drift.old(step), drift.runs(step))
        if restarts:
            steering = steered(drift, recorded(steering.states, dict[str, ModeState]), periods)
    return found
