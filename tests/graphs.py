"""Random joins of any shape: chains, stars, cycles and trees of equalities, inequalities and bands, with all windows.

Beside `workloads`, which makes what one key connects. Rows are few, because a join without an equality tries all
combinations of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from penstock.errors import RegistrationError
from penstock.model import Column, Stream
from penstock.model.time import SECOND
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.reference import Row
from tests.workloads import COMPARISONS, TIME, Workload

LAST_MOMENT = 20
MOST_ROLES = 6
MOST_ROWS = {2: 9, 3: 7, 4: 5, 5: 4, 6: 3}  # of one stream, by the number of roles
SEQUENCE = "n"

INTEGERS = ("k0", "k1", "v")
STRINGS = ("s", "t")
DOUBLES = ("x", "y")
FAMILIES = (INTEGERS, INTEGERS, STRINGS, DOUBLES)
TYPES = {**dict.fromkeys(INTEGERS, "bigint"), **dict.fromkeys(STRINGS, "string"), **dict.fromkeys(DOUBLES, "double")}
VALUES: dict[str, tuple[object, ...]] = {
    "k0": (0, 1, None),
    "k1": (0, 0, 1),
    "v": (0, 1, 2, 3, 5, None, 2**63 - 1, -(2**63)),
    "s": ("a", "b", None),
    "t": ("a", "a", "é", ""),
    "x": (0.0, -0.0, 1.5, float("nan"), None),
    "y": (0.0, 1.5, float("inf")),
    SEQUENCE: (0, 1, 2, None),
}
FILTERS = ("{0}.k0 = 0", "{0}.v > 0", "{0}.s IS NOT NULL", "{0}.t IN ('a', '')", "NOT {0}.x > 1.0")
SHAPES = ("chain", "star", "cycle", "tree", "clique")
EDGES = ("equal", "equal", "composite", "theta", "band", "time", "cross")
ALIKE_EDGES = ("plain", "plain", "plain", "plain", "equal", "theta")
WINDOWS = ("range", "rows", "tumbling", "mixed")


@dataclass(frozen=True)
class Graph:
    """What a query joins: the stream of each role, conditions between roles, and roles that a CROSS JOIN brings in."""

    roles: tuple[Stream, ...]
    conjuncts: tuple[str, ...]
    crossed: frozenset[int]


@st.composite
def graph_workload(
    draw: st.DrawFn, windows: Sequence[str] = WINDOWS, queries: int = 1, *, most: int = MOST_ROLES, alike: bool = False
) -> Workload:
    """Streams, queries of any shape up to `most` roles over them with these windows, and rows within their bounds.

    Queries that are `alike` join three streams or more by the same conditions, mostly equalities, with windows and
    filters of their own.
    """
    unit = draw(st.sampled_from((1, SECOND)))
    counts = (3, 3, 3, 4, MOST_ROLES) if alike else (2, 2, 3, 3, 4, 5, MOST_ROLES)
    count = draw(st.sampled_from([n for n in counts if n <= most]))
    streams = {}
    for name in "abcdef"[: draw(st.integers(1, 4) | st.just(count))]:
        columns = [Column(TIME, "bigint" if unit == 1 else "timestamp"), *(Column(c, t) for c, t in TYPES.items())]
        sequence = SEQUENCE if draw(st.booleans()) else None
        columns += [Column(SEQUENCE, "bigint")] if sequence else []
        delay = draw(st.sampled_from((0, 3, 2 * LAST_MOMENT))) * unit
        streams[name] = Stream(name, tuple(draw(st.permutations(columns))), TIME, delay, sequence=sequence)
    kinds = ALIKE_EDGES if alike else EDGES
    graphs = [draw(_graph(list(streams.values()), count, unit, kinds)) for _ in range(1 if alike else queries)]
    found = [draw(_query(graphs[n % len(graphs)], unit, windows)) for n in range(queries)]
    return Workload(streams, tuple(found), draw(_batches(list(streams.values()), MOST_ROWS[count], unit)))


def runnable_graph(
    windows: Sequence[str] = WINDOWS, queries: int = 1, *, most: int = MOST_ROLES, alike: bool = False
) -> st.SearchStrategy[Workload]:
    """Such workloads without those that registration refuses: unbounded roles, or contradictory time conditions."""
    return graph_workload(windows, queries, most=most, alike=alike).filter(_registers)


def _registers(workload: Workload) -> bool:
    try:
        build_network([StandingQuery(n, f"q{n}", query) for n, query in enumerate(workload.parsed)], workload.streams)
    except RegistrationError:
        return False
    return True


@st.composite
def _batches(draw: st.DrawFn, streams: Sequence[Stream], most: int, unit: int) -> tuple[dict[str, list[Row]], ...]:
    """Up to three steps; a row may lie behind the newest ones as far as its stream allows."""
    newest = dict.fromkeys((s.name for s in streams), 0)
    left = dict.fromkeys((s.name for s in streams), most)
    batches = []
    for _ in range(draw(st.integers(1, 3))):
        batch: dict[str, list[Row]] = {}
        for stream in streams:
            earliest = max(0, newest[stream.name] - stream.delay // unit)
            times = st.integers(earliest, max(earliest, LAST_MOMENT))
            rows = draw(
                st.lists(_row(stream, times, unit), min_size=min(2, left[stream.name]), max_size=left[stream.name])
            )
            left[stream.name] -= len(rows)
            newest[stream.name] = max([newest[stream.name], *(int(str(r[TIME])) // unit for r in rows)])
            batch[stream.name] = rows
        batches.append(batch)
    return tuple(batches)


@st.composite
def _row(draw: st.DrawFn, stream: Stream, times: st.SearchStrategy[int], unit: int) -> Row:
    values = {c.name: draw(st.sampled_from(VALUES[c.name])) for c in stream.columns if c.name != TIME}
    return {TIME: draw(times) * unit, **values}


@st.composite
def _graph(draw: st.DrawFn, streams: Sequence[Stream], count: int, unit: int, kinds: Sequence[str]) -> Graph:
    """Roles and what connects them."""
    if len(streams) >= count and draw(st.booleans()):
        roles = draw(st.permutations(streams))[:count]
    else:
        roles = [draw(st.sampled_from(streams)) for _ in range(count)]
    conjuncts: list[str] = []
    crossed: set[int] = set()
    for i, j in draw(_edges(count)):
        kind = draw(st.sampled_from(kinds))
        if kind == "cross" and j == i + 1:
            crossed.add(j)
        else:
            conjuncts += draw(_edge(kind, f"r{i}", f"r{j}", unit))
    return Graph(tuple(roles), tuple(conjuncts), frozenset(crossed))


@st.composite
def _query(draw: st.DrawFn, graph: Graph, unit: int, windows: Sequence[str]) -> str:
    roles, conjuncts = graph.roles, list(graph.conjuncts)
    aliases = [f"r{n}" for n in range(len(roles))]
    brackets = draw(_windows(roles, unit, draw(st.sampled_from(list(windows)))))
    items = [f"{stream.name}{window} AS {a}" for stream, window, a in zip(roles, brackets, aliases, strict=True)]
    conjuncts += [draw(st.sampled_from(FILTERS)).format(a) for a in aliases if draw(st.integers(0, 4)) == 4]
    joined = [" CROSS JOIN" if n in graph.crossed else "," for n in range(len(roles))]
    tables = items[0] + "".join(f"{joined[n]} {items[n]}" for n in range(1, len(roles)))
    where = f" WHERE {' AND '.join(draw(st.permutations(conjuncts)))}" if conjuncts else ""
    selected = ", ".join(f"{a}.{c}" for a in aliases for c in (TIME, "k0", "v", "t"))
    return f"SELECT {selected}, result_time FROM {tables}{where}"


@st.composite
def _edges(draw: st.DrawFn, count: int) -> list[tuple[int, int]]:
    """Pairs of roles that a condition connects; together they connect all."""
    match draw(st.sampled_from(SHAPES)):
        case "star":
            return [(0, n) for n in range(1, count)]
        case "cycle":
            return [*((n, n + 1) for n in range(count - 1)), (0, count - 1)]
        case "tree":
            return [(draw(st.integers(0, n - 1)), n) for n in range(1, count)]
        case "clique":
            return [(i, j) for j in range(count) for i in range(j)]
        case _:
            return [(n, n + 1) for n in range(count - 1)]


@st.composite
def _edge(draw: st.DrawFn, kind: str, x: str, y: str, unit: int) -> list[str]:
    """The conditions of one edge."""
    family = draw(st.sampled_from(FAMILIES))
    one, other = draw(st.sampled_from(family)), draw(st.sampled_from(family))
    near = draw(st.integers(0, LAST_MOMENT))
    match kind:
        case "plain":  # few values, so that more rows match
            return [f"{x}.{draw(st.sampled_from(INTEGERS[:2]))} = {y}.{draw(st.sampled_from(INTEGERS[:2]))}"]
        case "composite":
            return [f"{x}.k1 = {y}.k1", f"{y}.{one} = {x}.{other}"]
        case "theta":
            return [f"{x}.{one} {draw(st.sampled_from(COMPARISONS[1:]))} {y}.{other}"]
        case "band":
            width = draw(st.integers(0, 2))
            return [f"{x}.v BETWEEN {y}.v - {width} AND {y}.v + {width}"]
        case "time":
            length = f"{near}" if unit == 1 else f"INTERVAL {near} SECONDS"
            one_sided = f"{x}.{TIME} <= {y}.{TIME} + {length}"
            return draw(st.sampled_from(([one_sided], [one_sided, f"{y}.{TIME} <= {x}.{TIME}"])))
        case _:
            return [f"{x}.{one} = {y}.{other}"]


@st.composite
def _windows(draw: st.DrawFn, roles: Sequence[Stream], unit: int, kind: str) -> list[str]:
    """A window for each role, as text; some roles have none."""
    seconds = "" if unit == 1 else " SECONDS"
    if kind == "tumbling":
        origin = draw(st.integers(-3, 25))
        moment = f"{origin}" if unit == 1 else f"TIMESTAMP '1970-01-01 00:00:{origin:02}'"
        given_origin = f" ORIGIN {moment}" if draw(st.booleans()) and (unit == 1 or origin >= 0) else ""
        return [f" [TUMBLING {draw(st.integers(1, 12))}{seconds}{given_origin}]"] * len(roles)
    kinds = {"range": ("range",), "rows": ("rows", "partitioned")}.get(
        kind, ("range", "rows", "partitioned", "all", "")
    )
    found = []
    for _ in roles:
        match draw(st.sampled_from(kinds)):
            case "range":
                found.append(f" [RANGE {draw(st.integers(1, LAST_MOMENT))}{seconds}]")
            case "rows":
                found.append(f" [ROWS {draw(st.integers(1, 4))}]")
            case "partitioned":
                columns = draw(st.sampled_from(("k0", "s", "x", "k1, s")))
                found.append(f" [ROWS {draw(st.integers(1, 3))} PARTITION BY {columns}]")
            case "all":
                found.append(" [RANGE ALL]")
            case _:
                found.append("")
    return found
