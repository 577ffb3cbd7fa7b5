"""The multi-way joins of Golab & Ozsu 2003, chapter 3: when they evaluate, when rows expire, and the order of loops.

NAIVE has one order whatever tuple is new; EAGER and LAZY put the new tuples outermost; GENERAL has an order for each
stream's new tuples. With buckets they are the MULTI-WAY HASH JOIN (3.4), with buckets for some windows the HYBRID
(3.5). Arrivals come in order of time. Figures are simulated: they count operations, not seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lab.counts import Counts
from lab.multijoin.loops import Execution, Order, nest
from lab.multijoin.query import Composite, MultiJoin
from lab.multijoin.windows import window
from lab.workload import Arrival, LabError
from penstock.model.time import NEVER

AT_ONCE = 0  # the interval of what is done at every arrival


class Operator:
    """A running join: `orders[i]` are its loops for new tuples of stream i, `every` and `expire_every` its intervals.

    Evaluation at intervals allows expiration only after an evaluation (4.1): a tuple that is too old now may have been
    young enough for one that still waits. Results are never retracted.
    """

    def __init__(
        self,
        query: MultiJoin,
        orders: Sequence[Order],
        *,
        every: int = AT_ONCE,
        expire_every: int = AT_ONCE,
        buckets: Sequence[int] = (),
    ) -> None:
        count = len(query.windows)
        if len(orders) != count or len(buckets) not in (0, count):
            raise LabError(f"{count} streams need {count} orders, and no buckets or {count}; give one for each stream")
        if min(every, expire_every) < 0:
            raise LabError(f"an interval is {min(every, expire_every)}; it is at least 0, which is at every arrival")
        if expire_every < every:
            raise LabError(
                f"tuples wait {every} to be joined and windows expire every {expire_every}: that drops what those "
                f"that wait still need; expire every {every} or more"
            )
        self.query = query
        self.every = every
        self.expire_every = expire_every
        self.counts = Counts()
        self.output: list[Composite] = []
        self.windows = [
            window(extent, size, self.counts, eagerly=expire_every == AT_ONCE)
            for extent, size in zip(query.windows, buckets or (1,) * count, strict=True)
        ]
        self._nests = [nest(query, order) for order in orders]
        self._newest = NEVER  # all tuples up to this time have arrived
        self._last = NEVER  # the number of the last arrival
        self._joined = NEVER  # the number of the last arrival that was joined
        self._due: int | None = None  # the time of the next evaluation
        self._expire_at = NEVER

    def arrive(self, x: Arrival) -> None:
        """Store a tuple after all evaluations that were due before its time; without an interval, join it at once."""
        self._check(x)
        if self.every == AT_ONCE:
            self._expire(x.time)
            self._insert(x)
            self._evaluate([x.stream])
            return
        if self._due is None:
            self._due = -(-x.time // self.every) * self.every
        while self._due < x.time:
            self.execute(self._due)
            self._due += self.every
        self._insert(x)

    def execute(self, now: int) -> None:
        """Join the tuples since the last evaluation, and expire if it is time; all tuples until `now` have arrived."""
        self._newest = max(self._newest, now)
        self._evaluate(self.query.streams)
        self._expire(self._newest)

    def finish(self) -> None:
        """The streams have ended: join the waiting tuples."""
        if self._joined != self._last:
            self.execute(self._newest)

    def run(self, arrivals: Iterable[Arrival]) -> list[Composite]:
        """All results of a finite input."""
        for x in arrivals:
            self.arrive(x)
        self.finish()
        return self.output

    def fill(self, arrivals: Iterable[Arrival]) -> None:
        """Put tuples into the windows without joining them, counting only the state (6.1)."""
        if self._joined != self._last:
            raise LabError("tuples wait that filling would leave unjoined; call execute first")
        for x in arrivals:
            self._check(x)
            self._insert(x)
        self._joined = self._last
        for held in self.windows:
            held.expire(self._newest)
        self.counts.purge_tests = self.counts.purged = 0
        self.counts.peak_state = self.counts.state

    def __str__(self) -> str:
        return (
            f"simulated: a join of {len(self.windows)} windows holds {self.counts.state:,} tuples "
            f"({self.counts.peak_state:,} at most), makes {self.counts.comparisons:,} comparisons "
            f"and {len(self.output):,} results"
        )

    def _check(self, x: Arrival) -> None:
        if x.stream not in self.query.streams:
            raise LabError(f"there is no stream {x.stream}; the query joins 0 to {len(self.windows) - 1}")
        if x.time < self._newest:
            raise LabError(f"a tuple of time {x.time} comes after time {self._newest}; sort the arrivals")
        if x.number <= self._last:
            raise LabError(f"arrival {x.number} comes after arrival {self._last}; number them in their order")

    def _insert(self, x: Arrival) -> None:
        self.windows[x.stream].insert(x)
        self._newest, self._last = x.time, x.number

    def _evaluate(self, origins: Iterable[int]) -> None:
        self.counts.messages += 1
        for origin in origins:
            execution = Execution(self.windows, self._nests[origin], origin, self._joined, self.counts)
            self.output.extend(execution.results())
        self._joined = self._last

    def _expire(self, now: int) -> None:
        if now >= self._expire_at:
            for held in self.windows:
                held.expire(now)
            self._expire_at = now + self.expire_every


def naive(query: MultiJoin, order: Order, *, every: int = AT_ONCE, buckets: Sequence[int] = ()) -> Operator:
    """NAIVE (3.1): one order of loops; the new tuples replace their own window wherever it is.

    At intervals each composite is checked against the new tuple's time; otherwise it would find expired rows.
    """
    orders = [order] * len(query.windows)
    return Operator(query, orders, every=every, expire_every=every, buckets=buckets)


def eager(query: MultiJoin, order: Order, *, expire_every: int = AT_ONCE, buckets: Sequence[int] = ()) -> Operator:
    """EAGER (3.2): join at every arrival; the new tuple is outermost, the others follow in the global order."""
    return Operator(query, effective_orders(order), expire_every=expire_every, buckets=buckets)


def lazy(
    query: MultiJoin, order: Order, every: int, *, expire_every: int | None = None, buckets: Sequence[int] = ()
) -> Operator:
    """LAZY (3.3): join at intervals, for each stream its new tuples, outermost, with the others in the global order."""
    return general(query, effective_orders(order), every, expire_every=expire_every, buckets=buckets)


def general(
    query: MultiJoin,
    orders: Sequence[Order],
    every: int,
    *,
    expire_every: int | None = None,
    buckets: Sequence[int] = (),
) -> Operator:
    """GENERAL LAZY (3.3): join at intervals, with an order for each stream's new tuples, at any place in it."""
    if every <= 0:
        raise LabError(f"the interval of evaluation is {every}; it is longer than 0")
    return Operator(
        query, orders, every=every, expire_every=every if expire_every is None else expire_every, buckets=buckets
    )


def effective_orders(order: Order) -> list[Order]:
    """For each stream the order with this stream outermost and the others unchanged (Table 4)."""
    return [(origin, *(stream for stream in order if stream != origin)) for origin in sorted(order)]
