"""Results of queries as rows of a derived stream, read by Spark where a select list is more than columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from penstock.model.time import LATEST
from penstock.planner.derived import LAST_TICK, DerivedStream, Ticks
from penstock.results.read import ResultView
from penstock.spark.result_frames import result_frame
from penstock.sql.spelling import time_in_units
from penstock.step.layout import Layout
from penstock.step.taken import Taken


def frames_of(taken: Taken, session: SparkSession, layout: Layout) -> list[DataFrame]:
    """The rows, laid out like a batch."""
    return [
        _branch(taken.derived, view, result_frame(view, session, taken.manifest, taken.part), layout)
        for view in taken.views
    ]


def _branch(derived: DerivedStream, view: ResultView, frame: DataFrame, layout: Layout) -> DataFrame:
    """Results of one query as rows of the derived stream."""
    held = {name: f"_i{number}" for number, name in enumerate(view.record.item_names)}
    frame = frame.toDF(*held.values())
    columns = {slot: column for column, slot in layout.slots[derived.name].items()}
    fields = [
        f"{held[columns[slot]]} AS {slot}" if columns.get(slot) in held else f"CAST(NULL AS {kind}) AS {slot}"
        for slot, kind in layout.types
    ]
    tag = layout.order.index(derived.name)
    if layout.marked:
        fields += ["CAST(NULL AS INT) AS _mark", "CAST(NULL AS STRING) AS _pattern"]
    if layout.placed:
        fields.append("CAST(NULL AS BIGINT) AS _seq")
    types = {c.name: c.type for c in derived.stream.columns}
    if derived.ticks is None:
        time = time_in_units(types[derived.stream.event_time], held[derived.stream.event_time])
    else:
        times = [time_in_units(types[column], held[column]) for column, _ in derived.ticks.ranges]
        counted, time, last = tick_sql(derived.ticks, times)
        slot = layout.slots[derived.name][LAST_TICK]
        fields = [f"{last} AS {slot}" if field.endswith(f" AS {slot}") else field for field in fields]
        frame = frame.where(counted)
    return frame.selectExpr(f"{tag} AS _stream", f"{time} AS _ts", *fields)


def tick_sql(ticks: Ticks, times: Sequence[str]) -> tuple[str, str, str]:
    """(whether a row counts at some tick, the moments before the first and last) in SQL; `times` are its roles'."""
    last = _greatest("least", [f"{t} + {n}L" for t, (_, n) in zip(times, ticks.ranges, strict=True) if n is not None])
    newest = _greatest("greatest", times)
    first = f"{newest} - pmod({newest} - {ticks.start}L, {ticks.slide}L) + {ticks.slide}L"
    some = f"{first} <= {last}"
    if ticks.origin is not None:
        some += f" AND {_greatest('least', times)} >= {ticks.origin}L"
    begin, end = f"({first} - 1L)", f"({last} - 1L)"
    whole = f"{end} - pmod({end} - {begin}, {ticks.slide}L)"
    return some, begin, f"least({whole}, {LATEST}L - pmod({LATEST}L - {begin}, {ticks.slide}L))"


def _greatest(function: str, values: Sequence[str]) -> str:
    return f"{function}({', '.join(values)})" if len(values) > 1 else f"({values[0]})"
