"""Random queries of every kind over random streams, as SQL. Lengths are few, so that windows and panes coincide."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.model import Column, Stream
from penstock.model.time import SECOND

TIME, PUNCTUATION, SEQUENCE = "at", "p", "n"
COLUMNS = (
    ("k", "bigint"),
    ("g", "int"),
    ("s", "string"),
    ("v", "bigint"),
    ("u", "bigint"),
    ("x", "double"),
    ("y", "double"),
)
LENGTHS = (2, 3, 5, 8, 13)
SLIDES = (1, 2, 4, 5)

# The first few values are common, so that rows join; the rest are edge cases.
VALUES: dict[str, tuple[object, ...]] = {
    "g": (0, 1, 2, None),
    "s": ("a", "b", "", None, "é", "\U0001f600"),
    "v": (0, 1, 2, 3, 5, 7, None),
    "u": (0, 1, 2, None, -1, 2**53 + 1, 2**63 - 1, -(2**63)),
    "x": (0.0, 0.25, 1.5, -2.5, None),
    "y": (0.0, -0.0, 1.5, float("nan"), None, float("inf"), float("-inf")),
}
PREDICATES = (
    "{}.v > 1", "{}.v BETWEEN 1 AND 5", "{}.g = 0", "{}.g <> 1", "{}.s = 'a'", "{}.s IN ('a', 'b', '')", "{}.x < 1.0D",
    "{}.u IS NOT NULL", "({}.v = 2 OR {}.s IS NULL)", "NOT ({}.v < 2 AND {}.g = 0)", "{}.u + 1 > 0", "{}.y >= 0.0D",
)  # fmt: skip
RESIDUALS = (
    "{0}.v <= {1}.v",
    "{0}.v <> {1}.v",
    "{0}.x < {1}.x",
    "({0}.v > 1 OR {1}.g = 0)",
    "{0}.u - {1}.u < 9",
    "{0}.s <= {1}.s",
)
CALLS = (
    "count(*)", "count(v)", "sum(v)", "avg(v)", "min(v)", "max(v)", "max(s)", "sum(x)", "min(y)", "stddev(v)",
    "variance(x)",
    "count(DISTINCT v)", "sum(DISTINCT v)", "first(v)", "last(v)", "last(s) IGNORE NULLS", "any_value(g)",
    "collect_list(v)",
)  # fmt: skip
ARBITRARY = {"any_value(g)"}  # the reference's choice is one of several answers
HAVINGS = ("count(*) > 1", "max(v) >= 2 OR count(*) = 1")
TOPS = ("count(*) DESC NULLS LAST LIMIT 1", "max(v) ASC NULLS FIRST, count(*) DESC NULLS LAST LIMIT 2")
GROUPS = ((), ("k",), ("g",), ("s", "g"), ("k", "g"))


@dataclass(frozen=True)
class Draw:
    """Draws queries over these streams. Windows are of the streams' unit of time."""

    chance: random.Random
    streams: Sequence[Stream]

    @property
    def unit(self) -> int:
        return 1 if self.streams[0].integer_time else SECOND

    def length(self, lengths: Sequence[int] = LENGTHS) -> str:
        return self.span(self.chance.choice(lengths))

    def span(self, length: int) -> str:
        return f"{length}" if self.unit == 1 else f"{length} SECONDS"

    def interval(self, length: int) -> str:
        return f"{length}" if self.unit == 1 else f"INTERVAL {length} SECONDS"

    def roles(self, count: int) -> list[str]:
        return [self.chance.choice(self.streams).name for _ in range(count)]

    def filters(self, aliases: Sequence[str], share: float) -> list[str]:
        return [self.chance.choice(PREDICATES).replace("{}", a) for a in aliases if self.chance.random() < share]

    def items(self, aliases: Sequence[str], *more: str) -> str:
        known = [f"{a}.{c}" for a in aliases for c in (TIME, *(name for name, _ in COLUMNS))]
        chosen = [*self.chance.sample(known, self.chance.randint(1, 4)), *more]
        return ", ".join(f"{item} AS c{n}" for n, item in enumerate(chosen))


def stream_columns(time: str) -> tuple[Column, ...]:
    return (
        Column(TIME, time),
        *(Column(name, kind) for name, kind in COLUMNS),
        Column(SEQUENCE, "bigint"),
        Column(PUNCTUATION, time),
    )


def filtered(draw: Draw) -> str:
    """Single rows of a stream."""
    name = draw.roles(1)[0]
    conditions = dict.fromkeys(draw.filters(["r0", "r0"], 0.7))  # of two that may raise, only Spark knows the order
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {draw.items(['r0'])} FROM {name} AS r0{where}"


def _joined(
    draw: Draw, count: int, window: Callable[[int], str], conditions: Sequence[str] = (), keys: Sequence[str] = ("k",)
) -> str:
    aliases = [f"r{n}" for n in range(count)]
    conjuncts = [*conditions, *draw.filters(aliases, 0.3)]
    for one, other in pairwise(aliases):
        conjuncts += [f"{one}.{key} = {other}.{key}" for key in keys]
    if draw.chance.random() < 0.3:
        conjuncts.append(draw.chance.choice(RESIDUALS).format(*draw.chance.sample(aliases, 2)))
    draw.chance.shuffle(conjuncts)
    tables = ", ".join(f"{name}{window(n)} AS r{n}" for n, name in enumerate(draw.roles(count)))
    return f"SELECT {draw.items(aliases, 'result_time')} FROM {tables} WHERE {' AND '.join(conjuncts)}"


def _range(draw: Draw, lengths: Sequence[int] = LENGTHS) -> Callable[[int], str]:
    return lambda _: f" [RANGE {draw.length(lengths)}]"


def _keys(draw: Draw) -> tuple[str, ...]:
    return draw.chance.choice((("k",), ("k",), ("k",), ("k", "s"), ("k", "y"), ("g", "k")))


def join_of_two(draw: Draw) -> str:
    return _joined(draw, 2, _range(draw), keys=_keys(draw))


def join_of_three(draw: Draw) -> str:
    return _joined(draw, 3, _range(draw), keys=_keys(draw))


def join_of_four(draw: Draw) -> str:
    return _joined(draw, 4, _range(draw, (2, 3, 5)))


def banded(draw: Draw) -> str:
    """A join whose times are restricted by conditions instead of windows, or beside them."""
    windowed = draw.chance.random() < 0.4
    back, ahead = draw.chance.choice(LENGTHS), draw.chance.choice((0, 1, 3))
    band = f"r0.{TIME} BETWEEN r1.{TIME} - {draw.interval(back)} AND r1.{TIME} + {draw.interval(ahead)}"
    more = [f"r0.{TIME} >= r1.{TIME}"] if draw.chance.random() < 0.3 else []
    return _joined(draw, 2, _range(draw) if windowed else lambda _: "", [band, *more])


def key_classes(draw: Draw) -> str:
    """A join of three streams by two different keys, so that rows are exchanged twice."""
    aliases = ["r0", "r1", "r2"]
    one, other = draw.chance.sample(("k", "g", "s"), 2)
    conjuncts = [f"r0.{one} = r1.{one}", f"r1.{other} = r2.{other}", *draw.filters(aliases, 0.5)]
    tables = ", ".join(
        f"{name} [RANGE {draw.length((2, 3))}] AS {a}" for name, a in zip(draw.roles(3), aliases, strict=True)
    )
    return f"SELECT {draw.items(aliases, 'result_time')} FROM {tables} WHERE {' AND '.join(conjuncts)}"


def unequal(draw: Draw) -> str:
    """A join without an equality."""
    condition = draw.chance.choice(
        ("r0.v >= r1.v - 1 AND r0.v <= r1.v + 1", "r0.v < r1.v AND r0.g = 0", "r0.x <= r1.x AND r1.v = 1")
    )
    tables = ", ".join(f"{name} [RANGE {draw.length((1, 2, 3))}] AS r{n}" for n, name in enumerate(draw.roles(2)))
    return f"SELECT {draw.items(['r0', 'r1'], 'result_time')} FROM {tables} WHERE {condition}"


def counted_rows(draw: Draw) -> str:
    """A join in which some windows count rows."""
    by = draw.chance.choice(("", "", " PARTITION BY k", " PARTITION BY g"))
    shapes = [
        f" [ROWS {draw.chance.randint(1, 4)}{by}]",
        draw.chance.choice((f" [RANGE {draw.length()}]", f" [ROWS {draw.chance.randint(1, 3)}]")),
    ]
    return _joined(draw, 2, lambda n: shapes[n])


def tumbling_join(draw: Draw) -> str:
    length = draw.length()
    return _joined(draw, draw.chance.choice((2, 2, 3)), lambda _: f" [TUMBLING {length}]")


def _aggregated(
    draw: Draw, source: str, *, top: bool = True, arbitrary: bool = True, havings: Sequence[str] = HAVINGS
) -> str:
    groups = draw.chance.choice(GROUPS)
    known = [call for call in CALLS if arbitrary or call not in ARBITRARY]
    calls = draw.chance.sample(known, draw.chance.randint(1, 3))
    items = ["window_start", "window_end", *groups, *(f"{call} AS a{n}" for n, call in enumerate(calls))]
    where = f" WHERE {draw.chance.choice(PREDICATES).replace('{}.', '')}" if draw.chance.random() < 0.3 else ""
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    having = f" HAVING {draw.chance.choice(havings)}" if draw.chance.random() < 0.2 else ""
    first = f" ORDER BY {draw.chance.choice(TOPS)}" if top and draw.chance.random() < 0.2 else ""
    return f"SELECT {', '.join(items)} FROM {source}{where}{by}{having}{first}"


def _one(draw: Draw) -> str:
    return draw.roles(1)[0]


def sliding(draw: Draw) -> str:
    return _aggregated(draw, f"{_one(draw)} [RANGE {draw.length()} SLIDE {draw.length(SLIDES)}]")


def _in_step(draw: Draw) -> str:
    """A stream whose groups all end at the same time."""
    return draw.chance.choice([stream.name for stream in draw.streams if not stream.patterns])


def _by_time(draw: Draw) -> str:
    shapes = (
        f"RANGE {draw.length()} SLIDE {draw.length(SLIDES)}",
        f"TUMBLING {draw.length()}",
        f"RANGE ALL SLIDE {draw.length((4, 5, 8))}",
    )
    return draw.chance.choice((shapes[0], *shapes))


def early(draw: Draw) -> str:
    """Windows that are shown before they close; what HAVING has let through it must let through later too."""
    found = _aggregated(draw, f"{_in_step(draw)} [{_by_time(draw)}]", top=False, havings=HAVINGS[:1])
    return f"{found} EMIT EARLY EVERY {draw.chance.choice((1, 1, 3))} SECONDS"


def slow(draw: Draw) -> str:
    """Windows of which a step may give only some results, see `Add.flush`."""
    return _aggregated(draw, f"{_in_step(draw)} [{_by_time(draw)}]", top=False)


def tumbling(draw: Draw) -> str:
    return _aggregated(draw, f"{_one(draw)} [TUMBLING {draw.length()}]")


def landmark(draw: Draw) -> str:
    return _aggregated(draw, f"{_one(draw)} [RANGE ALL SLIDE {draw.length((4, 5, 8))}]")


def session(draw: Draw) -> str:
    return _aggregated(draw, f"{_one(draw)} [SESSION {draw.length((1, 2, 3))}]", top=False)


def _parted(draw: Draw) -> str:
    return draw.chance.choice(("", "", " PARTITION BY k", " PARTITION BY g"))


def rows_window(draw: Draw) -> str:
    length, slide = draw.chance.randint(1, 5), draw.chance.randint(1, 4)
    return _aggregated(draw, f"{_one(draw)} [RANGE {length} ROWS SLIDE {slide} ROWS{_parted(draw)}]")


def per_row(draw: Draw) -> str:
    return _aggregated(
        draw, f"{_one(draw)} [RANGE {draw.length()} SLIDE {draw.chance.randint(1, 3)} ROWS{_parted(draw)}]"
    )


def distinct(draw: Draw) -> str:
    column = draw.chance.choice(("g", "s", "k"))
    return f"SELECT DISTINCT {TIME}, {column} FROM {_one(draw)}"


def moments(draw: Draw) -> str:
    return f"SELECT {TIME}, k, count(*) AS n, sum(v) AS s FROM {_one(draw)} GROUP BY {TIME}, k"


def over_join(draw: Draw) -> str:
    """An aggregate over a join, of the windows of one number."""
    slide = draw.length((2, 4))
    tables = ", ".join(
        f"{name} [RANGE {draw.length((3, 5, 8))} SLIDE {slide}] AS r{n}" for n, name in enumerate(draw.roles(2))
    )
    group = draw.chance.choice(("", "r0.k", "r1.g"))
    shown, by = (f", {group} AS key", f" GROUP BY {group}") if group else ("", "")
    conditions = ["r0.k = r1.k", *draw.filters(["r0", "r1"], 0.3)]
    return f"SELECT window_end{shown}, count(*) AS n, sum(r1.v) AS s FROM {tables} WHERE {' AND '.join(conditions)}{by}"


def _union(draw: Draw, *, whole: bool = False) -> str:
    """Rows of two streams; an aggregate reads each row once, and whole."""
    one, other = draw.roles(2)
    if whole or draw.chance.random() < 0.5:
        names = dict.fromkeys((one, other)) if whole else (one, other)
        return f"({' UNION ALL '.join(names)})" if len(names) > 1 else one
    items = f"SELECT {TIME}, k, g, s, v, u, x, y FROM"
    return f"({items} {one} WHERE v > 0 UNION ALL {items} {other})"


def united_filter(draw: Draw) -> str:
    conditions = draw.filters(["r0"], 0.8) or ["r0.v IS NOT NULL"]
    return f"SELECT {draw.items(['r0'])} FROM {_union(draw)} AS r0 WHERE {conditions[0]}"


def united_join(draw: Draw) -> str:
    names = [_union(draw), draw.roles(1)[0]]
    tables = ", ".join(f"{name} [RANGE {draw.length()}] AS r{n}" for n, name in enumerate(names))
    return f"SELECT {draw.items(['r0', 'r1'], 'result_time')} FROM {tables} WHERE r0.k = r1.k"


def united_aggregate(draw: Draw) -> str:
    window = draw.chance.choice(
        (f"RANGE {draw.length()} SLIDE {draw.length(SLIDES)}", f"SESSION {draw.length((1, 2))}")
    )
    return _aggregated(draw, f"{_union(draw, whole=True)} [{window}]", top=False)


EARLY, SLOW = "EMIT EARLY", "slow results"
UNLIMITED = 1000  # windows by which slow results may be late
KINDS: dict[str, Callable[[Draw], str]] = {
    "filter": filtered, "join of 2": join_of_two, "join of 3": join_of_three, "join of 4": join_of_four,
    "bands": banded,
    "key classes": key_classes, "no equality": unequal, "ROWS join": counted_rows, "TUMBLING join": tumbling_join,
    "sliding": sliding,
    "tumbling": tumbling, "landmark": landmark, "session": session, "ROWS window": rows_window, "per row": per_row,
    "DISTINCT": distinct,
    "moments": moments, "over a join": over_join, "union": united_filter, "union join": united_join,
    "union aggregate": united_aggregate, EARLY: early, SLOW: slow,
}  # fmt: skip
OVER = "over a query"  # needs two: the base, whose columns are named here, and its reader
IN_STEP = frozenset({EARLY, SLOW})  # which need a stream without punctuations of single groups
LATER = frozenset(KINDS) - {"over a join", "moments", "DISTINCT"}  # may begin at any step
LISTED = frozenset({"filter", "join of 2", "join of 3", "bands"})  # folders get the files of their results
FROM_STATE = frozenset({"filter", "join of 2", "join of 3", "bands", "TUMBLING join", "key classes"})


def over_query(draw: Draw, base: str) -> tuple[str, str]:
    """A join whose results have names, and its readers, of several kinds."""
    tables = ", ".join(f"{name} [RANGE {draw.length((3, 5, 8))}] AS r{n}" for n, name in enumerate(draw.roles(2)))
    below = (
        f"SELECT r0.{TIME} AS t0, r1.{TIME} AS t1, r0.k AS k, r0.v AS v, r1.v AS w, result_time AS found "
        f"FROM {tables} WHERE r0.k = r1.k"
    )
    window = f"RANGE {draw.length()} SLIDE {draw.length(SLIDES)}"
    shapes = (
        f"SELECT window_start, window_end, k, count(*) AS n, sum(v) AS s FROM {base} [{window}] GROUP BY k",
        f"SELECT window_end, count(*) AS n, max(w) AS m FROM {base} [{window} ON t0]",
        f"SELECT t0, v, result_time FROM {base} WHERE v > 1",
        (
            f"SELECT x.v AS v, y.v AS w FROM {base} [RANGE {draw.length()}] AS x, {draw.roles(1)[0]} [RANGE "
            f"{draw.length()}] AS y WHERE x.k = y.k"
        ),
    )
    return below, draw.chance.choice(shapes)
