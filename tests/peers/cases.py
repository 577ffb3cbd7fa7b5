"""Cases in the shapes of other engines' suites for window joins, interval joins and window aggregates, by hand.

All cases read the same streams. A row of a case is (t, k, v) or (t, k, j, v); the column `c` names its case, and `{x}`
in a statement stands for the condition that the rows of role x are of the case. Bounds follow docs/sql.md: a row with
window w counts in [t, t + w), and a window of an aggregate is [start, end).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Data = list[tuple[object, ...]]
COLUMNS = "t bigint, c string, k bigint, j string, v bigint"
N = None


@dataclass(frozen=True)
class Case:
    name: str
    sql: str
    want: Data
    a: Data
    b: Data | None = None

    @property
    def statement(self) -> str:
        return re.sub(r"\{(\w+)\}", lambda role: f"{role[1]}.c = '{self.name}'", self.sql)

    def rows(self, stream: str) -> list[dict[str, object]]:
        given = self.a if stream == "a" else self.b or []
        return [{"t": r[0], "c": self.name, "k": r[1], "j": r[2] if len(r) == 4 else None, "v": r[-1]} for r in given]


WINDOWS = "SELECT x.v AS xv, y.v AS yv FROM a [RANGE 5] x, b [RANGE 3] y WHERE {x} AND {y} AND x.k = y.k"
TUMBLING = "SELECT x.v AS xv, y.v AS yv FROM a [TUMBLING 10] x, b [TUMBLING 10] y WHERE {x} AND {y} AND x.k = y.k"
COMPOSITE = (
    "SELECT x.v AS xv, y.v AS yv FROM a [RANGE 5] x, b [RANGE 3] y WHERE {x} AND {y} AND x.k = y.k AND x.j = y.j"
)
SELF = "SELECT x.v AS xv, y.v AS yv FROM a [RANGE 3] x, a [RANGE 3] y WHERE {x} AND {y} AND x.k = y.k"
INTERVAL = "SELECT x.v AS xv, y.v AS yv FROM a x, b y WHERE {x} AND {y} AND x.k = y.k AND "
CROSS = "SELECT x.v AS xv, y.v AS yv FROM a [RANGE 2] x CROSS JOIN b [RANGE 2] y WHERE {x} AND {y}"

AROUND = [(7, 1, 7), (8, 1, 8), (9, 1, 9), (10, 1, 10), (11, 1, 11), (12, 1, 12), (13, 1, 13), (14, 1, 14)]
AT_TEN = [(10, 1, 1)]

JOINS = [
    # keys that are NULL meet nothing, not even one another
    Case("null key on one side", WINDOWS, [(2, 10)], a=[(0, N, 1), (0, 7, 2)], b=[(1, 7, 10)]),
    Case("null key on the other side", WINDOWS, [(2, 10)], a=[(0, 7, 2)], b=[(1, 7, 10), (1, N, 11)]),
    Case("null keys on both sides", WINDOWS, [], a=[(0, N, 1), (1, N, 2)], b=[(0, N, 10), (1, N, 11)]),
    Case("null keys in a tumbling join", TUMBLING, [(3, 12)], a=[(0, N, 1), (1, 1, 3)], b=[(0, N, 10), (2, 1, 12)]),
    Case("null keys in an interval join", INTERVAL + "y.t BETWEEN x.t AND x.t + 5", [(2, 11)],
         a=[(0, N, 1), (0, 1, 2)], b=[(0, N, 10), (0, 1, 11)]),
    Case("null in one part of a composite key", COMPOSITE, [(1, 10)],
         a=[(0, 1, "p", 1), (0, N, "p", 2), (0, 1, N, 3)], b=[(0, 1, "p", 10), (0, N, "p", 11), (0, 1, N, 12)]),
    Case("null in all parts of a composite key", COMPOSITE, [], a=[(0, N, N, 1)], b=[(0, N, N, 10)]),
    Case("one part of a composite key differs", COMPOSITE, [(1, 12)],
         a=[(0, 1, "p", 1)], b=[(0, 1, "q", 10), (0, 2, "p", 11), (0, 1, "p", 12)]),
    Case("null key in a self-join", SELF, [(2, 2)], a=[(0, N, 1), (0, 1, 2)]),

    # borders of windows: x counts until its time + 5, y until its time + 3, both without the end
    Case("last moment of the window of x", WINDOWS, [(1, 10)], a=[(0, 1, 1)], b=[(4, 1, 10)]),
    Case("the window of x has just ended", WINDOWS, [], a=[(0, 1, 1)], b=[(5, 1, 10)]),
    Case("last moment of the window of y", WINDOWS, [(1, 10)], a=[(2, 1, 1)], b=[(0, 1, 10)]),
    Case("the window of y has just ended", WINDOWS, [], a=[(3, 1, 1)], b=[(0, 1, 10)]),
    Case("rows of one moment", WINDOWS, [(1, 10)], a=[(3, 1, 1)], b=[(3, 1, 10)]),
    Case("borders before 1970", WINDOWS, [(1, 11), (1, 12)],
         a=[(-10, 1, 1)], b=[(-13, 1, 10), (-12, 1, 11), (-6, 1, 12), (-5, 1, 13)]),
    Case("borders across 1970", WINDOWS, [(1, 11), (1, 12)],
         a=[(-1, 1, 1)], b=[(-4, 1, 10), (-3, 1, 11), (3, 1, 12), (4, 1, 13)]),

    # interval joins: bounds are as written, closed or open, on either side
    Case("interval with both bounds closed", INTERVAL + "y.t BETWEEN x.t - 2 AND x.t + 3",
         [(1, 8), (1, 9), (1, 10), (1, 11), (1, 12), (1, 13)], a=AT_TEN, b=AROUND),
    Case("interval with an open upper bound", INTERVAL + "y.t >= x.t - 2 AND y.t < x.t + 3",
         [(1, 8), (1, 9), (1, 10), (1, 11), (1, 12)], a=AT_TEN, b=AROUND),
    Case("interval with an open lower bound", INTERVAL + "y.t > x.t - 2 AND y.t <= x.t + 3",
         [(1, 9), (1, 10), (1, 11), (1, 12), (1, 13)], a=AT_TEN, b=AROUND),
    Case("interval with both bounds open", INTERVAL + "y.t > x.t - 2 AND y.t < x.t + 3",
         [(1, 9), (1, 10), (1, 11), (1, 12)], a=AT_TEN, b=AROUND),
    Case("interval of a single moment", INTERVAL + "y.t BETWEEN x.t AND x.t", [(1, 10)], a=AT_TEN, b=AROUND),
    Case("interval after the row only", INTERVAL + "y.t BETWEEN x.t + 2 AND x.t + 4",
         [(1, 12), (1, 13), (1, 14)], a=AT_TEN, b=AROUND),
    Case("interval before the row only", INTERVAL + "y.t BETWEEN x.t - 3 AND x.t - 2", [(1, 7), (1, 8)], a=AT_TEN,
     b=AROUND),
    Case("interval around times before 1970", INTERVAL + "y.t BETWEEN x.t - 2 AND x.t + 3",
         [(1, 8), (1, 13)], a=[(-10, 1, 1)], b=[(-13, 1, 7), (-12, 1, 8), (-7, 1, 13), (-6, 1, 14)]),
    Case("interval of each row of both sides", INTERVAL + "y.t BETWEEN x.t - 1 AND x.t + 1",
         [(1, 10), (1, 11), (2, 10), (2, 11), (2, 12), (3, 11), (3, 12)],
         a=[(1, 1, 1), (2, 1, 2), (3, 1, 3)], b=[(1, 1, 10), (2, 1, 11), (3, 1, 12)]),

    # tumbling joins: both in the same piece of time
    Case("last moments of a piece of time", TUMBLING, [(1, 10), (2, 10)], a=[(0, 1, 1), (9, 1, 2), (10, 1, 3)],
     b=[(9, 1, 10)]),
    Case("first moment of a piece of time", TUMBLING, [(3, 10)], a=[(0, 1, 1), (9, 1, 2), (19, 1, 3)], b=[(10, 1, 10)]),
    Case("pieces of time before 1970", TUMBLING, [(1, 10)], a=[(-1, 1, 1), (0, 1, 2), (-11, 1, 3)], b=[(-10, 1, 10)]),

    # one side without rows, duplicates, and what has no equality
    Case("nothing on the right", WINDOWS, [], a=[(0, 1, 1)], b=[]),
    Case("nothing on the left", WINDOWS, [], a=[], b=[(0, 1, 10)]),
    Case("nothing on the right of an interval", INTERVAL + "y.t BETWEEN x.t AND x.t + 5", [], a=[(0, 1, 1)], b=[]),
    Case("duplicates on both sides", WINDOWS, [(1, 10)] * 6, a=[(0, 1, 1)] * 2, b=[(0, 1, 10)] * 3),
    Case("duplicates in an interval join", INTERVAL + "y.t = x.t", [(1, 10)] * 4, a=[(0, 1, 1)] * 2,
     b=[(0, 1, 10)] * 2),
    Case("every pair within two", CROSS, [(1, 10), (1, 11), (2, 11)], a=[(0, 1, 1), (2, N, 2)],
     b=[(0, 2, 10), (1, N, 11)]),
    Case("an inequality beside the key", WINDOWS + " AND x.v < y.v - 9", [(1, 11), (1, 12), (2, 12)],
         a=[(0, 1, 1), (0, 1, 2), (0, 1, 9)], b=[(0, 1, 11), (1, 1, 12), (1, 1, N)]),

    # self-joins: a row meets itself, and every pair comes in both orders
    Case("self-join", SELF, [(1, 1), (2, 2), (3, 3), (1, 2), (2, 1), (2, 3), (3, 2)],
     a=[(0, 1, 1), (2, 1, 2), (3, 1, 3)]),
    Case("self-join without a row and itself", SELF + " AND x.v < y.v", [(1, 2), (2, 3)],
     a=[(0, 1, 1), (2, 1, 2), (3, 1, 3)]),
    Case("self-join of duplicates", SELF, [(1, 1)] * 4, a=[(0, 1, 1)] * 2),
    Case("self-join in an interval",
     "SELECT x.v AS xv, y.v AS yv FROM a x, a y WHERE {x} AND {y} AND x.k = y.k AND y.t BETWEEN x.t + 1 AND x.t + 3",
         [(1, 2), (1, 3), (2, 3)], a=[(0, 1, 1), (2, 1, 2), (3, 1, 3), (7, 1, 4)]),
    Case("a row between two of another stream",
         "SELECT x.v AS xv, y.v AS yv, z.v AS zv FROM a [RANGE 5] x, b [RANGE 5] y, a [RANGE 5] z "
         "WHERE {x} AND {y} AND {z} AND x.k = y.k AND y.k = z.k AND x.v < z.v",
         [(1, 10, 2)], a=[(0, 1, 1), (4, 1, 2), (5, N, 3)], b=[(2, 1, 10), (6, 1, 11), (2, N, 12)]),
]  # fmt: skip

COUNT = "SELECT x.k AS k, count(*) AS n, window_start, window_end FROM a [{}] x WHERE {{x}} GROUP BY x.k"
TENS, HOPS = COUNT.format("TUMBLING 10"), COUNT.format("RANGE 10 SLIDE 5")
UNEVEN, GAPS, SESSIONS = COUNT.format("RANGE 7 SLIDE 5"), COUNT.format("RANGE 2 SLIDE 5"), COUNT.format("SESSION 5")

AGGREGATES = [
    # tumbling windows: the first moment is in, the last one is the next window's
    Case("borders of tumbling windows", TENS, [(1, 2, 0, 10), (1, 1, 10, 20)], a=[(0, 1, 1), (9, 1, 2), (10, 1, 3)]),
    Case("tumbling windows before 1970", TENS, [(1, 1, -20, -10), (1, 2, -10, 0), (1, 1, 0, 10)],
         a=[(-11, 1, 1), (-10, 1, 2), (-1, 1, 3), (0, 1, 4)]),
    Case("an empty window between two", TENS, [(1, 1, 0, 10), (1, 1, 20, 30)], a=[(5, 1, 1), (25, 1, 2)]),
    Case("null is a group", TENS, [(N, 2, 0, 10), (1, 1, 0, 10)], a=[(0, N, 1), (1, N, 2), (2, 1, 3)]),
    Case("duplicates count as often as they come", TENS, [(1, 3, 0, 10)], a=[(4, 1, 1)] * 3),
    Case("no rows", TENS, [], a=[]),
    Case("what functions make of null",
     "SELECT x.k AS k, count(x.v) AS n, sum(x.v) AS s, min(x.v) AS low, max(x.v) AS high "
     "FROM a [TUMBLING 10] x WHERE {x} GROUP BY x.k",
         [(1, 2, 12, 5, 7), (2, 0, N, N, N)], a=[(0, 1, 5), (1, 1, N), (2, 1, 7), (3, 2, N)]),
    Case("without groups", "SELECT count(*) AS n, window_end FROM a [TUMBLING 10] x WHERE {x}", [(2, 10), (1, 20)],
         a=[(0, 1, 1), (9, N, 2), (10, 1, 3)]),

    # hopping windows: a row at a border is in the window that begins there and not in the one that ends there
    Case("borders of hopping windows", HOPS, [(1, 1, -5, 5), (1, 2, 0, 10), (1, 1, 5, 15)], a=[(0, 1, 1), (5, 1, 2)]),
    Case("last moments of hopping windows", HOPS, [(1, 1, -5, 5), (1, 2, 0, 10), (1, 1, 5, 15)],
     a=[(4, 1, 1), (9, 1, 2)]),
    Case("hopping windows before 1970", HOPS, [(1, 1, -10, 0), (1, 1, -5, 5)], a=[(-5, 1, 1)]),
    Case("a slide that does not divide the range", UNEVEN, [(1, 2, -2, 5), (1, 2, 3, 10), (1, 1, 8, 15)],
         a=[(2, 1, 1), (3, 1, 2), (8, 1, 3)]),
    Case("a range shorter than its slide", GAPS, [(1, 2, 3, 5), (1, 1, 8, 10)],
         a=[(2, 1, 1), (3, 1, 2), (4, 1, 3), (5, 1, 4), (7, 1, 5), (8, 1, 6)]),

    # sessions: rows less than the gap apart belong together; exactly the gap apart they do not
    Case("exactly the gap", SESSIONS, [(1, 2, 0, 9), (1, 1, 9, 14)], a=[(0, 1, 1), (4, 1, 2), (9, 1, 3)]),
    Case("a moment less than the gap", SESSIONS, [(1, 3, 0, 13)], a=[(0, 1, 1), (4, 1, 2), (8, 1, 3)]),
    Case("a late comer joins two sessions", SESSIONS, [(1, 3, 0, 13)], a=[(0, 1, 1), (8, 1, 2), (4, 1, 3)]),
    Case("sessions before 1970", SESSIONS, [(1, 2, -12, -3), (1, 1, -3, 2)], a=[(-12, 1, 1), (-8, 1, 2), (-3, 1, 3)]),
    Case("sessions of each group", SESSIONS, [(1, 2, 0, 9), (2, 1, 2, 7), (N, 1, 3, 8)],
         a=[(0, 1, 1), (2, 2, 2), (3, N, 3), (4, 1, 4)]),
    Case("a session of one moment", SESSIONS, [(1, 2, 3, 8)], a=[(3, 1, 1)] * 2),
]  # fmt: skip


@dataclass(frozen=True)
class LateCase:
    """Streams `a` and `b` with a delay of 2, and what each step brings to both: (t, k, v)."""

    name: str
    sql: str
    want: Data
    steps: list[tuple[Data, Data]]


# After the first step both have come to 8: a row of 8 is on time, one of 7 is late, and takes part in nothing although
# windows are open.
FIRST = ([(10, 1, 1)], [(10, 1, 10)])
SECOND = ([(7, 1, 2), (8, 1, 3)], [(7, 1, 11), (8, 1, 12)])
WHOLE = "SELECT x.v AS xv, y.v AS yv FROM a [RANGE 50] x, b [RANGE 50] y WHERE x.k = y.k"
LATE = [
    LateCase("late in a join", WHOLE, [(1, 10), (1, 12), (3, 10), (3, 12)], [FIRST, SECOND]),
    LateCase("late in an interval join",
     "SELECT x.v AS xv, y.v AS yv FROM a x, b y WHERE x.k = y.k AND y.t BETWEEN x.t - 2 AND x.t",
             [(1, 10), (1, 12), (3, 12)], [FIRST, SECOND]),
    LateCase("late in an open window", "SELECT count(*) AS n, window_end FROM a [TUMBLING 100] x", [(2, 100)],
     [FIRST, SECOND]),
    LateCase("late in a session", "SELECT count(*) AS n, window_start, window_end FROM a [SESSION 3] x", [(2, 8, 13)],
     [FIRST, SECOND]),
    LateCase("a step does not judge itself", WHOLE, [(1, 10), (2, 10)],
     [([(10, 1, 1), (-90, 2, 9), (7, 1, 2)], [(10, 1, 10)])]),
]  # fmt: skip
