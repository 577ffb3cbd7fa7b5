"""The plans that the chain is compared with, tuple at a time and with the same counters (Wang 2008, 4.1, 4.2, 6.3.1).

All figures from here are simulated: they count the work of the algorithms, not seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

from lab.chain import ENTRANCE, Chain
from lab.counts import Counts
from lab.slices import SlicedJoin
from lab.workload import A, Arrival, B, JoinQuery, LabError, Lengths, Match, Selection, Theta, checked, longest
from penstock.errors import did_you_mean
from penstock.model.time import NEVER

Answers = dict[str, list[Match]]


@dataclass(frozen=True)
class Trial:
    """One plan after a run; `states` are the tuples it stored after each arrival that was not in the warm-up."""

    plan: str
    answers: Answers
    counts: Counts
    states: tuple[int, ...]

    @property
    def mean_state(self) -> float:
        return sum(self.states) / len(self.states) if self.states else 0.0

    def __str__(self) -> str:
        results = sum(map(len, self.answers.values()))
        return (
            f"simulated: {self.plan} holds {self.mean_state:,.1f} tuples on average "
            f"({self.counts.peak_state:,} at most), "
            f"makes {self.counts.comparisons:,} comparisons and {results:,} results"
        )


@dataclass
class Plan:
    """The input of a plan, and its counters and answers."""

    queries: tuple[JoinQuery, ...]
    theta: Theta
    arrivals: Sequence[Arrival]
    counts: Counts = field(default_factory=Counts)
    answers: Answers = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answers = {query.name: [] for query in self.queries}

    def join(self, windows: Lengths) -> SlicedJoin:
        return SlicedJoin(ENTRANCE, windows, self.counts)

    def matches(self, join: SlicedJoin, x: Arrival) -> list[Match]:
        """The regular window join (3.2): expire, probe, insert."""
        self.counts.messages += 1
        join.purge(x)
        found = join.probe(x, self.theta)
        join.insert(x)
        return found

    def selected(self, query: JoinQuery, x: Arrival) -> bool:
        self.counts.filtered += query.selections[x.stream] is not None
        return query.selects(x)

    def routed(self, query: JoinQuery, join: SlicedJoin, match: Match) -> bool:
        """Compare the result's age with the query's window, unless that is the window of the join."""
        if query.windows == join.end:
            return True
        self.counts.routed += 1
        return query.close(*match)


Arrive = Callable[[Arrival], None]
Cell = tuple[bool, ...]  # the truth of each distinct selection on a stream


def isolated(plan: Plan) -> Arrive:
    """Every query has its own selections and its own join."""
    joins = [(query, plan.join(query.windows)) for query in plan.queries]

    def arrive(x: Arrival) -> None:
        for query, join in joins:
            if plan.selected(query, x):
                plan.answers[query.name] += plan.matches(join, x)

    return arrive


def pull_up(plan: Plan) -> Arrive:
    """One join with the longest windows; a router sends its results to the queries, which then select."""
    join = plan.join(longest(plan.queries))

    def arrive(x: Arrival) -> None:
        for match in plan.matches(join, x):
            for query in plan.queries:
                if plan.routed(query, join, match) and all(plan.selected(query, part) for part in match):
                    plan.answers[query.name].append(match)

    return arrive


def push_down(plan: Plan) -> Arrive:
    """Split the streams into cells on which every selection is constant; one join for each pair of cells.

    Each join has the longest windows of the queries that want its cells, and its own state of both streams. NULL is in
    the cell where the selection is false. Cells without arrivals count as unsatisfiable.
    """
    cuts: tuple[list[Selection], list[Selection]] = [], []
    for query, stream in product(plan.queries, (A, B)):
        selection = query.selections[stream]
        if selection is not None and selection not in cuts[stream]:
            cuts[stream].append(selection)

    def cell(x: Arrival) -> Cell:
        return tuple(selection(x.value) is True for selection in cuts[x.stream])

    def wants(query: JoinQuery, stream: int, signs: Cell) -> bool:
        selection = query.selections[stream]
        return selection is None or signs[cuts[stream].index(selection)]

    cells = [sorted({cell(x) for x in plan.arrivals if x.stream == stream}) for stream in (A, B)]
    joins: list[tuple[tuple[Cell, Cell], SlicedJoin, list[JoinQuery]]] = []
    for of_a, of_b in product(*cells):
        served = [query for query in plan.queries if wants(query, A, of_a) and wants(query, B, of_b)]
        if served:
            joins.append(((of_a, of_b), plan.join(longest(served)), served))
    inputs = {q.name: sum(q in served for _, _, served in joins) for q in plan.queries}

    def arrive(x: Arrival) -> None:
        plan.counts.split += len(cuts[x.stream])
        signs = cell(x)
        for pair, join, served in joins:
            if pair[x.stream] != signs:
                continue
            for match in plan.matches(join, x):
                for query in served:
                    if plan.routed(query, join, match):
                        plan.counts.union_steps += inputs[query.name] > 1
                        plan.answers[query.name].append(match)

    return arrive


def state_slice(plan: Plan) -> Arrive:
    """The chain with one slice at every distinct window and its selections pushed between the slices."""
    chain = Chain(plan.queries, plan.theta)
    plan.counts, plan.answers = chain.counts, chain.answers

    def arrive(x: Arrival) -> None:
        chain.arrive(x)
        chain.drain()

    return arrive


PLANS: dict[str, Callable[[Plan], Arrive]] = {
    "isolated": isolated,
    "pull_up": pull_up,
    "push_down": push_down,
    "state_slice": state_slice,
}


def simulate(
    name: str, queries: Sequence[JoinQuery], theta: Theta, arrivals: Sequence[Arrival], *, warm_up: int = 0
) -> Trial:
    """Run a plan over all arrivals, in order of time; `warm_up` is the time from which its state counts."""
    if name not in PLANS:
        raise LabError(f"there is no plan {name!r}; {did_you_mean(name, PLANS)}")
    plan = Plan(checked(queries), theta, arrivals)
    arrive = PLANS[name](plan)
    newest, states = NEVER, []
    for x in arrivals:
        if x.time < newest:
            raise LabError(f"a tuple of time {x.time} comes after one of time {newest}; sort the arrivals")
        newest = x.time
        arrive(x)
        if x.time >= warm_up:
            states.append(plan.counts.state)
    return Trial(name, plan.answers, plan.counts, tuple(states))
