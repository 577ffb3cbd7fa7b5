"""Random workloads: a few small streams full of awkward values, some standing queries over them, and batch cuts.

Times are few and small, so that equal times, exact window ends and shared keys are common; keys and payloads hold
NULL, NaN, -0.0, duplicates and extreme integers. A workload is plain data: any layer can be run on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

from hypothesis import strategies as st

from penstock.model import Column, Query, Stream
from penstock.model.time import LATEST, SECOND
from penstock.reference import Row, admit

LAST_MOMENT = 60
LONGEST_WINDOW = 30
MOST_STEPS = 5
MOST_ROWS = 4  # of one stream in one step: 20 rows in all, at most 160,000 candidates of a four-way join

TIME = "at"
KEY_TYPES = (("bigint",), ("int",), ("string",), ("double",), ("bigint", "string"), ("double", "int"))
PAYLOAD_TYPES = ("bigint", "int", "double", "string", "boolean")
INTEGERS = ("bigint", "int")

# The first few values of a type are common, so that keys meet; the rest is there to break things.
VALUES: dict[str, tuple[object, ...]] = {
    "bigint": (0, 1, 2, None, -1, 2**53 + 1, 2**63 - 1, -(2**63)),
    "int": (0, 1, 2, None, -1, 2**31 - 1, -(2**31)),
    "double": (0.0, -0.0, 1.5, float("nan"), None, -1.5, 2.0**53, float("inf"), float("-inf")),
    "string": ("a", "b", "", None, "B", "é", "\uffff", "\U0001f600"),
    "boolean": (True, False, None),
}
LITERALS = {
    "bigint": ("0", "1", "2", "-1", "9007199254740993", "9223372036854775807"),
    "int": ("0", "1", "2", "-1", "2147483647"),
    "double": ("0.0", "1.5", "-1.5", "2.25"),
    "string": ("'a'", "'b'", "''", "'B'", "'é'"),
    "boolean": ("TRUE", "FALSE"),
}
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Workload:
    """Streams, queries as SQL text, and what each step brings: rows by stream, in order of arrival."""

    streams: dict[str, Stream]
    queries: tuple[str, ...]
    batches: tuple[dict[str, list[Row]], ...]

    @cached_property
    def parsed(self) -> tuple[Query, ...]:
        from penstock.sql import parse_query

        return tuple(parse_query(text, self.streams) for text in self.queries)

    @cached_property
    def accepted(self) -> dict[str, list[Row]]:
        """The rows of each stream that are neither late nor bad, over all steps."""
        return {
            name: [row for step in admit(stream, self.arrivals(name)) for row in step.accepted]
            for name, stream in self.streams.items()
        }

    def arrivals(self, stream: str) -> list[list[Row]]:
        """What each step brings of one stream."""
        return [batch.get(stream, []) for batch in self.batches]


@st.composite
def workload(draw: st.DrawFn, *, late: bool = False) -> Workload:
    """A workload whose rows keep their stream's bound; with `late`, some are late and some have no usable time."""
    unit = draw(st.sampled_from((1, SECOND)))
    streams = draw(_streams(unit))
    queries = draw(st.lists(_query(tuple(streams.values()), unit), min_size=1, max_size=6))
    return Workload(streams, tuple(queries), draw(_batches(tuple(streams.values()), unit, late)))


def keys_of(stream: Stream) -> list[Column]:
    return [c for c in stream.columns if c.name.startswith("k")]


@st.composite
def _streams(draw: st.DrawFn, unit: int) -> dict[str, Stream]:
    time = Column(TIME, "timestamp" if unit == SECOND else draw(st.sampled_from(("bigint", "int"))))
    keys = [Column(f"k{n}", t) for n, t in enumerate(draw(st.sampled_from(KEY_TYPES)))]
    streams = {}
    for name in "abcd"[: draw(st.integers(2, 4))]:
        types = draw(st.lists(st.sampled_from(PAYLOAD_TYPES), min_size=1, max_size=3))
        payload = [Column(f"v{n}", t) for n, t in enumerate(types)]
        columns = draw(st.permutations([time, *keys, *payload]))
        streams[name] = Stream(name, tuple(columns), TIME, draw(st.sampled_from((0, 0, 1, 3, 10))) * unit)
    return streams


# ---------------------------------------------------------------------------------------------------------- rows


@st.composite
def _batches(draw: st.DrawFn, streams: Sequence[Stream], unit: int, late: bool) -> tuple[dict[str, list[Row]], ...]:
    steps = draw(st.sampled_from((3, MOST_STEPS, MOST_STEPS, 4, 1)))
    moments = draw(st.lists(st.integers(0, LAST_MOMENT), min_size=2, max_size=8, unique=True))
    silent = {s.name for s in streams if draw(st.integers(0, 9)) == 9}
    newest = {s.name: -1 for s in streams}
    batches = []
    for step in range(steps):
        batch: dict[str, list[Row]] = {}
        horizon = LAST_MOMENT * (step + 1) // steps
        for stream in streams:
            # What the steps before have left as the stream's progress; earlier rows would be late.
            earliest = max(0, newest[stream.name] - stream.delay // unit)
            inside = [m for m in moments if earliest <= m <= max(earliest, horizon)]
            on_time = st.integers(earliest, max(earliest, horizon))
            times = st.one_of(st.sampled_from(inside), st.sampled_from(inside), on_time) if inside else on_time
            if late:
                times = st.one_of(times, times, st.integers(0, LAST_MOMENT), st.sampled_from(_unusable(stream)))
            count = 0 if stream.name in silent else draw(st.sampled_from((MOST_ROWS, 0, 1, 3, MOST_ROWS, MOST_ROWS)))
            rows = [draw(_row(stream, times, unit)) for _ in range(count)]
            if count > 2 and draw(st.booleans()):
                rows[-1] = dict(rows[0])  # the same values twice are two rows
            if rows or draw(st.booleans()):
                batch[stream.name] = rows
            known = [t // unit for r in rows if isinstance(t := r[TIME], int) and t <= LAST_MOMENT * unit]
            newest[stream.name] = max([newest[stream.name], *known])
        batches.append(batch)
    return tuple(batches)


def _unusable(stream: Stream) -> tuple[int | None, ...]:
    """Event times that make a row bad: none at all, or one too large to add a window to."""
    return (None, LATEST + 1) if stream.column(TIME) == Column(TIME, "bigint") else (None,)


@st.composite
def _row(draw: st.DrawFn, stream: Stream, times: st.SearchStrategy[int | None], unit: int) -> Row:
    row: Row = {}
    for column in stream.columns:
        if column.name == TIME:
            time = draw(times)
            row[TIME] = time * unit if time is not None and time <= LAST_MOMENT else time
        else:
            values = VALUES[column.type]
            common = values[: {"k0": 2, "k1": 1}.get(column.name, 4)]
            row[column.name] = draw(
                st.one_of(st.sampled_from(common), st.sampled_from(common), st.sampled_from(values))
            )
    return row


# ------------------------------------------------------------------------------------------------------- queries


@st.composite
def _query(draw: st.DrawFn, streams: Sequence[Stream], unit: int) -> str:
    """`SELECT .. FROM .. WHERE ..` over one to four roles; a stream may come twice."""
    roles = [draw(st.sampled_from(streams)) for _ in range(draw(st.sampled_from((2, 1, 2, 3, 3, 4))))]
    aliases = [f"r{n}" for n in range(len(roles))]
    columns = [(f"{a}.{c.name}", c.type) for a, s in zip(aliases, roles, strict=True) for c in s.columns]
    # A witness: times, one for each role, at which all time conditions hold, so that they cannot contradict each other.
    furthest = draw(st.sampled_from((0, 3, 8)))
    witness = {alias: draw(st.integers(0, furthest)) for alias in aliases}
    bounded_by = draw(st.sampled_from(("windows", "windows", "bands", "both", "some"))) if len(roles) > 1 else "none"
    from_items = []
    for alias, stream in zip(aliases, roles, strict=True):
        windowed = bounded_by in ("windows", "both") or (bounded_by == "some" and draw(st.booleans()))
        oldest = max(witness.values()) - witness[alias]
        from_items.append(f"{stream.name}{draw(_window(oldest, unit)) if windowed else ''} AS {alias}")
    conjuncts = [f"{x}.{key.name} = {y}.{key.name}" for x, y in pairwise(aliases) for key in keys_of(roles[0])]
    if bounded_by in ("bands", "some"):
        pairs = [draw(st.permutations(p)) for p in pairwise(aliases)]
        conjuncts += [draw(_two_sided_band(x, y, witness[x] - witness[y], unit)) for x, y in pairs]
    if bounded_by in ("both", "some"):
        pairs = [draw(st.permutations(p)) for p in combinations(aliases, 2) if draw(st.booleans())]
        conjuncts += [draw(_one_sided_band(x, y, witness[x] - witness[y], unit)) for x, y in pairs]
    for alias, stream in zip(aliases, roles, strict=True):
        own = [(f"{alias}.{c.name}", c.type) for c in stream.columns if c.name != TIME]
        if len(roles) == 1 or draw(st.integers(0, 3)) == 3:
            conjuncts += draw(st.lists(_predicate(own), max_size=2))
    if len(roles) > 1 and draw(st.integers(0, 2)) == 2:
        conjuncts.append(draw(_residual(columns)))
    items = draw(st.lists(st.sampled_from([*(name for name, _ in columns), "result_time"]), min_size=1, max_size=4))
    if draw(st.booleans()):
        items = [f"{item} AS c{n}" for n, item in enumerate(items)]
    where = f" WHERE {' AND '.join(draw(st.permutations(conjuncts)))}" if conjuncts else ""
    return f"SELECT {', '.join(items)} FROM {', '.join(from_items)}{where}"


def _length(n: int, unit: int) -> str:
    return f"{n}" if unit == 1 else f"INTERVAL {n} SECONDS"


@st.composite
def _window(draw: st.DrawFn, oldest: int, unit: int) -> str:
    """A window in which a row of that age still counts; now and then one without end."""
    length = draw(st.integers(oldest + 1, LONGEST_WINDOW + 1))
    return " [RANGE ALL]" if length > LONGEST_WINDOW else f" [RANGE {length}{'' if unit == 1 else ' SECONDS'}]"


@st.composite
def _two_sided_band(draw: st.DrawFn, x: str, y: str, distance: int, unit: int) -> str:
    """Bounds on how far x may lie before and after y, with room for x = y + distance."""
    back = _length(draw(st.integers(max(0, -distance), LONGEST_WINDOW // 2)), unit)
    ahead = _length(draw(st.integers(max(0, distance), LONGEST_WINDOW // 2)), unit)
    return f"{x}.{TIME} BETWEEN {y}.{TIME} - {back} AND {y}.{TIME} + {ahead}"


@st.composite
def _one_sided_band(draw: st.DrawFn, x: str, y: str, distance: int, unit: int) -> str:
    """A bound on how far x may lie after y, or must at least, with room for x = y + distance."""
    x, y = f"{x}.{TIME}", f"{y}.{TIME}"
    most = _length(draw(st.integers(max(0, distance), LONGEST_WINDOW // 2)), unit)
    below = _length(draw(st.integers(max(0, distance) + 1, LONGEST_WINDOW // 2)), unit)
    shapes = [f"{x} <= {y} + {most}", f"{x} - {most} <= {y}", f"{x} < {y} + {below}", f"{y} + {below} > {x}"]
    if distance > 0:
        least = draw(st.integers(0, distance))
        shapes += 3 * [f"{x} >= {y} + {_length(least, unit)}", f"{x} > {y}"]
    return draw(st.sampled_from(shapes))


@st.composite
def _atom(draw: st.DrawFn, columns: Sequence[tuple[str, str]]) -> str:
    """One test of a bare column against literals: what a predicate index can answer."""
    name, kind = draw(st.sampled_from(columns))
    literal = st.sampled_from(LITERALS[kind])
    shapes = ["compare", "compare", "reversed", "in", "null", "between"]
    match draw(st.sampled_from([*shapes, "boolean"] if kind == "boolean" else shapes)):
        case "compare":
            return f"{name} {draw(st.sampled_from(COMPARISONS))} {draw(literal)}"
        case "reversed":
            return f"{draw(literal)} {draw(st.sampled_from(COMPARISONS))} {name}"
        case "in":
            values = [draw(literal), draw(literal), *draw(st.sampled_from(([], [], ["NULL"])))]
            return f"{name} {draw(st.sampled_from(('IN', 'NOT IN')))} ({', '.join(values)})"
        case "null":
            return f"{name} IS {draw(st.sampled_from(('', 'NOT ')))}NULL"
        case "between":
            return f"{name} {draw(st.sampled_from(('', 'NOT ')))}BETWEEN {draw(literal)} AND {draw(literal)}"
        case _:
            return draw(st.sampled_from((name, f"NOT {name}")))


@st.composite
def _predicate(draw: st.DrawFn, columns: Sequence[tuple[str, str]]) -> str:
    """A condition on one role; those after the first kind are beyond a predicate index."""
    match draw(st.sampled_from(("atom", "atom", "atom", "or", "not", "compared", "sum"))):
        case "or":
            return f"({draw(_atom(columns))} OR {draw(_atom(columns))})"
        case "not":
            return f"NOT ({draw(_atom(columns))} AND {draw(_atom(columns))})"
        case "compared":
            return draw(_comparison(columns, columns))
        case "sum":
            return draw(_sum(columns, columns))
        case _:
            return draw(_atom(columns))


@st.composite
def _residual(draw: st.DrawFn, columns: Sequence[tuple[str, str]]) -> str:
    """A condition on columns of (mostly) two roles."""
    columns = [(name, kind) for name, kind in columns if not name.endswith(f".{TIME}")]
    left, right = draw(st.lists(st.sampled_from(sorted({n.split(".")[0] for n, _ in columns})), min_size=2, max_size=2))
    ours = [c for c in columns if c[0].startswith(f"{left}.")]
    theirs = [c for c in columns if c[0].startswith(f"{right}.")]
    match draw(st.sampled_from(("compared", "compared", "or", "sum"))):
        case "or":
            return f"({draw(_atom(ours))} OR {draw(_atom(theirs))})"
        case "sum":
            return draw(_sum(ours, theirs))
        case _:
            return draw(_comparison(ours, theirs))


@st.composite
def _comparison(draw: st.DrawFn, ours: Sequence[tuple[str, str]], theirs: Sequence[tuple[str, str]]) -> str:
    """Two columns that compare without a cast, if there are such; a cast is Spark's alone to make."""
    pairs = [(x, y) for x, s in ours for y, t in theirs if x != y and (s == t or {s, t} <= {*INTEGERS})]
    if not pairs:
        return draw(_atom(ours))
    x, y = draw(st.sampled_from(pairs))
    # An equality of two key columns would become part of the key.
    both_keys = all(".k" in name for name in (x, y))
    return f"{x} {draw(st.sampled_from(COMPARISONS[1:] if both_keys else COMPARISONS))} {y}"


@st.composite
def _sum(draw: st.DrawFn, ours: Sequence[tuple[str, str]], theirs: Sequence[tuple[str, str]]) -> str:
    """A sum or difference of 64-bit columns that may overflow, always as a conjunct of its own.

    (What an overflow under OR means depends on which side is looked at first; DuckDB does not say.)
    """
    for kind in ("bigint", "double"):
        x, y = ([name for name, t in columns if t == kind] for columns in (ours, theirs))
        if x and y:
            right = draw(st.sampled_from([*y, LITERALS[kind][1]]))
            sum_ = f"{draw(st.sampled_from(x))} {draw(st.sampled_from('+-'))} {right}"
            return f"{sum_} {draw(st.sampled_from(COMPARISONS))} {draw(st.sampled_from(LITERALS[kind]))}"
    return draw(_atom(ours))
