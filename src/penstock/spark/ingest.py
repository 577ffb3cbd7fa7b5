"""From the streams' DataFrames to tagged rows: what Spark SQL does in the JVM before mappers receive them.

All streams of the network are one tagged union, read by one streaming query. Columns of equal type share a slot, so
that the union is as wide as its widest stream. Per step, one projection keeps the columns that some query needs, and
adds what only Spark can compute (decision 0009). Mappers compute verdicts, key hashes and the tasks of rows
(`step/mapper.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's customary name)

from penstock.columns.verdict import MALFORMED_MARK
from penstock.model import Ref, Stream
from penstock.model.time import EARLIEST, LATEST, NEVER
from penstock.planner.keys import INTEGRAL
from penstock.planner.network import Network
from penstock.planner.state_table import ComputedColumn, StateTable, key_column
from penstock.sql.spelling import quote, text_literal, time_in_units
from penstock.step.layout import Layout
from penstock.step.mapper import brought, truth_words

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

# How whole rejected rows are written as JSON, and read back.
SIDE_FORMATS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_JSON_OPTIONS = "map(" + ", ".join(f"'{key}', \"{value}\"" for key, value in SIDE_FORMATS.items()) + ")"


def unify(sources: Mapping[str, DataFrame], streams: Mapping[str, Stream], layout: Layout) -> DataFrame:
    """The tagged union of all streams: `_stream`, `_ts` (event time in the engine's unit), and the slots.

    With punctuations also `_mark` and `_pattern`, and `_ts` is the bound of a punctuation; with a delay in rows also
    `_seq`. Streams with the same DataFrame are read once: each of its rows is a row of all of them.
    """
    branches = []
    for names in read_together(sources, layout):
        source = sources[names[0]]
        rows = [_fields(layout.order.index(name), streams[name], layout) for name in names]
        if len(rows) == 1:
            branches.append(source.selectExpr(*[f"{value} AS {field}" for field, value in rows[0].items()]))
            continue
        structs = [", ".join(f"'{field}', {value}" for field, value in row.items()) for row in rows]
        each = ", ".join(f"named_struct({fields})" for fields in structs)
        branches.append(source.selectExpr(f"inline(array({each}))"))
    return reduce(DataFrame.union, branches)


def widened(batch: DataFrame, layout: Layout, whole: Layout) -> DataFrame:
    """A batch of the streams that Spark reads, with the columns of derived streams."""
    more = whole.types[len(layout.types) :]
    return batch.selectExpr("*", *[f"CAST(NULL AS {kind}) AS {slot}" for slot, kind in more]) if more else batch


def read_together(sources: Mapping[str, DataFrame], layout: Layout) -> list[list[str]]:
    """The streams of each source, in the order of reading."""
    found: dict[int, list[str]] = {}
    for name in layout.order:
        found.setdefault(id(sources[name]), []).append(name)
    return list(found.values())


def _fields(tag: int, stream: Stream, layout: Layout) -> dict[str, str]:
    """The fields of a stream's row in the tagged union."""
    column_of = {slot: column for column, slot in layout.slots[stream.name].items()}
    event_time = stream.column(stream.event_time)
    assert event_time is not None
    time = time_in_units(event_time.type, quote(event_time.name))
    if stream.punctuated:
        time = f"CASE WHEN _mark IS NULL THEN {time} ELSE _bound END"
    slots = {
        slot: quote(column_of[slot]) if slot in column_of else f"CAST(NULL AS {kind})" for slot, kind in layout.types
    }
    return {"_stream": str(tag), "_ts": time, **slots, **_extras(stream, layout)}


def _extras(stream: Stream, layout: Layout) -> dict[str, str]:
    """The additional fields of a stream's rows, if any stream of the layout needs them."""
    found: dict[str, str] = {}
    if layout.marked:
        own = ("_mark", "_pattern") if stream.punctuated else ("CAST(NULL AS INT)", "CAST(NULL AS STRING)")
        found |= {"_mark": own[0], "_pattern": own[1]}
    if layout.placed:
        sequence = stream.column(stream.sequence) if stream.sequence is not None else None
        placed = "CAST(NULL AS BIGINT)"
        if stream.delay_rows is not None and sequence is not None:
            placed = time_in_units(sequence.type, quote(sequence.name))
        found["_seq"] = placed
    return found


def project(batch: DataFrame, network: Network, layout: Layout, told: Mapping[str, int]) -> DataFrame:
    """The mappers' input: stream and time of each row, columns, and what only Spark can compute.

    Rows that may be rejected come with their text (`_side`): those without a usable time or sequence, and those before
    the time that is `told` for their stream. The mapper decides which ones they are. These times are one array literal:
    Spark passes arrays to compiled code by reference, so the code of every step is the same text and is compiled once.
    """
    derived = {d.name: d for d in network.derived if d.term is None}
    places = {name: place for name, place in truth_words(network).items() if name in derived}
    risky = [d for d in derived.values() if d.risky]
    if risky:
        batch = batch.select("*", *[_guarded(d, layout).alias(f"_try{d.name}") for d in risky])
    brings = {name: brought(network, network.streams[name]) for name in layout.order}
    slots = {slot for name, own in layout.slots.items() for column, slot in own.items() if column in brings[name]}
    values = [d for d in derived.values() if any(d.name in own for own in brings.values())]
    hashed = [t for t in network.tables if key_column(t.name) in brings[t.stream]]
    words = sorted({word for word, _ in places.values()})
    return batch.selectExpr(
        "_stream",
        "_ts",
        *_side(network, layout, told),
        *(["_mark", "_pattern"] if layout.marked else []),
        *(["_seq"] if layout.placed else []),
        *sorted(slots),
        *[f"{f'_try{d.name}.v' if d.risky else _only(d, layout)} AS {d.name}" for d in values],
        *[f"{_key_in(layout, table)} AS {key_column(table.name)}" for table in hashed],
        *[f"{_word(layout, places, derived, w)} AS _t{w}" for w in words],
    )


def _key_in(layout: Layout, table: StateTable) -> str:
    """A row's key in a state table of its stream, if only Spark can hash it."""
    return f"CASE WHEN _stream = {layout.order.index(table.stream)} THEN {_key(table, layout)} END"


def _fill(parts: tuple[str | Ref, ...], stream: str, layout: Layout) -> str:
    return "".join(p if isinstance(p, str) else layout.name(stream, p.column) for p in parts)


def _by_stream(layout: Layout, text: Callable[[str], str]) -> str:
    """CASE over the tag, or the text itself if it is the same for all streams."""
    texts = [text(name) for name in layout.order]
    if len(set(texts)) == 1:
        return texts[0]
    branches = [f"WHEN {tag} THEN {branch}" for tag, branch in enumerate(texts)]
    return f"CASE _stream {' '.join(branches)} END"


def _only(derived: ComputedColumn, layout: Layout) -> str:
    tag = layout.order.index(derived.stream)
    return f"CASE WHEN _stream = {tag} THEN {_fill(derived.parts, derived.stream, layout)} END"


def _guarded(derived: ComputedColumn, layout: Layout) -> Column:
    """The value in a struct that is NULL if and only if evaluation raised."""
    return try_eval(F.expr(f"named_struct('v', {_only(derived, layout)})"))


def try_eval(column: Column) -> Column:
    """Spark's own TryEval, which SQL does not expose: NULL instead of an error."""
    from pyspark import SparkContext  # noqa: PLC0415

    context = SparkContext._active_spark_context  # noqa: SLF001
    assert context is not None
    jvm: JVMView = context._jvm  # noqa: SLF001
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    guarded = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(column._jc))  # noqa: SLF001
    return Column(utils.column(guarded))


def _word(
    layout: Layout, places: Mapping[str, tuple[int, int]], derived: Mapping[str, ComputedColumn], word: int
) -> str:
    def bits(stream: str) -> str:
        terms = []
        for name, (place, shift) in places.items():
            value = derived[name]
            if value.stream != stream or place != word:
                continue
            text = f"_try{name}.v" if value.risky else _fill(value.parts, stream, layout)
            terms.append(f"(CASE WHEN {text} THEN {1 << shift}L ELSE 0L END)")
            if value.risky:
                terms.append(f"(CASE WHEN _try{name} IS NULL THEN {2 << shift}L ELSE 0L END)")
        return " | ".join(terms) or "0L"

    return _by_stream(layout, bits)


def _key(table: StateTable, layout: Layout) -> str:
    """The hash of a row's key in a state table; NULL if a part is NULL, unless NULL is a key, or cannot be computed."""
    parts = [
        f"_try{guard}.v" if guard else _fill(part, table.stream, layout)
        for part, guard in zip(table.key, table.guards, strict=True)
    ]
    if len(parts) == 1 and table.key_types[0] in INTEGRAL:
        hashed = "xxhash64(CAST(" + INTEGRAL[table.key_types[0]].format(parts[0]) + " AS BIGINT))"
    else:
        hashed = f"xxhash64({', '.join(parts)})"
        if table.grouped:  # NULL is a group
            return hashed
    missing = " OR ".join(f"({p}) IS NULL" for p in parts)
    return f"CASE WHEN {missing} THEN CAST(NULL AS BIGINT) ELSE {hashed} END"


def _side(network: Network, layout: Layout, told: Mapping[str, int]) -> list[str]:
    """The whole row as JSON where a late or invalid row may have to be kept; nothing if all streams drop such rows."""

    def whole(name: str) -> str:
        stream = network.streams[name]
        fields = ", ".join(f"{text_literal(c.name)}, {layout.slots[name][c.name]}" for c in stream.columns)
        return f"to_json(named_struct({fields}), {_JSON_OPTIONS})"

    kept = [n for n in layout.order if {network.streams[n].late, network.streams[n].bad} != {"drop"}]
    if not kept:
        return []
    placed = [layout.order.index(n) for n in kept if network.streams[n].delay_rows is not None]
    bounds = ", ".join(f"{told.get(name, NEVER)}L" for name in (*layout.order, layout.order[-1]))
    # If all rows are of one stream, Spark would inline the bound, unless its place depends on the row.
    place = f"_stream + CAST(_ts < {EARLIEST}L AS INT)"
    tests = [f"_ts IS NULL OR _ts < {EARLIEST}L OR _ts > {LATEST}L OR _ts < array({bounds})[{place}]"]
    if layout.marked:
        tests.append(f"_mark = {MALFORMED_MARK}")
    if placed:
        tests.append(f"_seq IS NULL AND _stream IN ({', '.join(map(str, placed))})")
    doubtful = " OR ".join(tests)
    texts = " ".join(f"WHEN {layout.order.index(name)} THEN {whole(name)}" for name in kept)
    return [f"CASE WHEN {doubtful} THEN CASE _stream {texts} END END AS _side"]
