"""Random workloads over unions: of whole streams, and of SELECTs with lists and conditions, in filters and joins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hypothesis import strategies as st

from penstock.model import Column, Query, Stream
from penstock.model.time import SECOND
from penstock.planner.unions import distribute
from penstock.sql import parse_query
from tests.workloads import (
    TIME,
    Workload,
    _batches,
    _predicate,
    _residual,
    _window,
)

COLUMNS = (("k0", "bigint"), ("v0", "bigint"), ("v1", "string"), ("v2", "double"))
FROM_OTHER = {"bigint": ("v0", "k0", "v0 + 1", "1L"), "string": ("v1", "'a'", "NULL"), "double": ("v2", "v2 + 0.5D")}
ORDERS = st.permutations((TIME, *(name for name, _ in COLUMNS)))


@dataclass(frozen=True)
class United(Workload):
    """A workload over unions; `parsed` are the combinations of all queries, for whom knows no unions."""

    @cached_property
    def written(self) -> tuple[Query, ...]:
        return tuple(parse_query(text, self.streams) for text in self.queries)

    @cached_property
    def combinations(self) -> tuple[tuple[Query, ...], ...]:
        return tuple(distribute(query, self.streams) for query in self.written)

    @cached_property
    def parsed(self) -> tuple[Query, ...]:
        return tuple(one for combined in self.combinations for one in combined)

    def together(self, answers):
        """The answer of each query: those of its combinations."""
        left = iter(answers)
        return [[row for _ in combined for row in next(left)] for combined in self.combinations]


@st.composite
def united_workload(draw: st.DrawFn, *, late: bool = False) -> United:
    unit = draw(st.sampled_from((1, SECOND)))
    time = Column(TIME, "timestamp" if unit == SECOND else "bigint")
    streams = {}
    for name in "abcd"[: draw(st.integers(2, 4))]:
        columns = draw(st.permutations([time, *(Column(n, t) for n, t in COLUMNS)]))
        streams[name] = Stream(name, tuple(columns), TIME, draw(st.sampled_from((0, 0, 1, 3, 10))) * unit)
    queries = draw(st.lists(_query(tuple(streams), unit), min_size=1, max_size=4))
    return United(streams, tuple(queries), draw(_batches(tuple(streams.values()), unit, late)))


@st.composite
def _union(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[str, list[tuple[str, str]]]:
    """A role's rows, and its columns but the event time, which is called `at`."""
    if draw(st.integers(0, 3)) == 3:
        return draw(st.sampled_from(names)), list(COLUMNS)
    parts = draw(st.lists(st.sampled_from(names), min_size=2, max_size=3))
    if draw(st.booleans()):
        whole = [draw(st.sampled_from((name, f"SELECT * FROM {name}"))) for name in parts]
        return f"({' UNION ALL '.join(whole)})", list(COLUMNS)
    shown = draw(st.lists(st.sampled_from(COLUMNS[1:]), min_size=1, max_size=3, unique=True))
    columns = [COLUMNS[0], *((f"w{n}", kind) for n, (_, kind) in enumerate(shown))]
    place = draw(st.integers(0, len(columns)))
    selects = [draw(_select(name, columns, place, nulls=number > 0)) for number, name in enumerate(parts)]
    return f"({' UNION ALL '.join(selects)})", columns


@st.composite
def _select(draw: st.DrawFn, name: str, columns: list[tuple[str, str]], place: int, *, nulls: bool) -> str:
    alias = draw(st.sampled_from(("", " AS s")))
    # Only Spark knows the type of a key that is no column.
    shown_as = {n: FROM_OTHER[kind] if n != "k0" else ("k0", "k0", "v0") for n, kind in columns}
    # If all were NULL, only Spark would know what to make of it.
    forms = {n: [f for f in known if nulls or f != "NULL"] for n, known in shown_as.items()}
    items = [f"{draw(st.sampled_from(known))} AS {shown}" for shown, known in forms.items()]
    items.insert(place, draw(st.sampled_from((TIME, f"{'s' if alias else name}.{TIME} AS {TIME}"))))
    where = draw(st.lists(_predicate([(n, t) for n, t in COLUMNS]), max_size=2))
    return f"SELECT {', '.join(items)} FROM {name}{alias}" + (f" WHERE {' AND '.join(where)}" if where else "")


@st.composite
def _query(draw: st.DrawFn, names: tuple[str, ...], unit: int) -> str:
    unions = [draw(_union(names)) for _ in range(draw(st.sampled_from((2, 1, 2, 3))))]
    aliases = [f"r{n}" for n in range(len(unions))]
    columns = [(f"{a}.{n}", t) for a, (_, own) in zip(aliases, unions, strict=True) for n, t in own]
    tumbling = draw(st.integers(0, 4)) == 4
    piece = f" [TUMBLING {draw(st.integers(2, 30))}{'' if unit == 1 else ' SECONDS'}]"
    windows = [piece if tumbling else draw(_window(0, unit)) for _ in unions]
    conjuncts = [f"{aliases[0]}.k0 = {other}.k0" for other in aliases[1:]]
    for alias, (_, own) in zip(aliases, unions, strict=True):
        if len(unions) == 1 or draw(st.integers(0, 3)) == 3:
            conjuncts += draw(st.lists(_predicate([(f"{alias}.{n}", t) for n, t in own]), max_size=2))
    if len(unions) > 1 and draw(st.booleans()):
        # An equality would be a key, and only Spark knows the type of one that is no column.
        conjuncts.append(draw(_residual(columns).filter(lambda text: " = " not in text or ".w" not in text)))
    if len(unions) > 1 and draw(st.integers(0, 3)) == 3:
        conjuncts.append(f"{aliases[0]}.{TIME} <= {aliases[1]}.{TIME}")
    shown = [*(name for name, _ in columns), *(f"{a}.{TIME}" for a in aliases), "result_time"]
    items = [f"{item} AS c{n}" for n, item in enumerate(draw(st.lists(st.sampled_from(shown), min_size=1, max_size=4)))]
    sources = ", ".join(
        f"{text}{window if len(unions) > 1 else ''} AS {alias}"
        for (text, _), window, alias in zip(unions, windows, aliases, strict=True)
    )
    where = f" WHERE {' AND '.join(draw(st.permutations(conjuncts)))}" if conjuncts else ""
    return f"SELECT {', '.join(items)} FROM {sources}{where}"
