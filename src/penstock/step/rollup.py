"""Partials of one aggregate, made from those of another one with more groups, as if a mapper had made them of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate.close import merged_anew
from penstock.kernels.aggregate.entries import patterns_of, together, with_patterns
from penstock.kernels.aggregate.forms import pane_places
from penstock.planner.panes import PaneSet
from penstock.planner.rollup import Rollup
from penstock.planner.state_table import StateTable
from penstock.planner.window_aggregate import AggregateSource, WindowAggregate
from penstock.step.keys import keys_of


def rolled_up(
    aggregate: WindowAggregate,
    source: AggregateSource,
    table: StateTable,
    rollup: Rollup,
    made: Mapping[int, Sequence[pa.Table]],
    cuts: Mapping[int, int],
) -> Iterator[tuple[int, pa.Table]]:
    """Partials by pane set, from those that were `made` for the other aggregate; `cuts` by query, as for rows."""
    for number, own in enumerate(aggregate.plan.sets):
        partials = _serving(aggregate, own, rollup, made.get(rollup.sets[number], ()))
        if partials is None:
            continue
        found, bits, patterns = partials
        places = found.column("_pane").to_numpy()
        groups = {name: _array(found, f"g{n}") for name, n in zip(source.groups, rollup.groups, strict=True)}
        keys, _ = keys_of(table, groups, _array(found, "_pane"))
        columns: dict[str, pa.Array] = {"_key": pa.array(keys)}
        columns |= {f"g{n}": groups[name] for n, name in enumerate(source.groups)}
        columns["_pane"] = pa.array(pane_places(own, places, sorted({cuts[q] for q in own.queries if q in cuts})))
        columns["_bits"] = bits
        for piece, of in enumerate(rollup.pieces):
            parts = [name for name in found.column_names if name.startswith(f"p{of}_")]
            columns |= {f"p{piece}_{name.split('_')[1]}": _array(found, name) for name in parts}
        yield number, merged_anew(aggregate.plan, [with_patterns(pa.table(columns), patterns)])


def _serving(
    aggregate: WindowAggregate, own: PaneSet, rollup: Rollup, made: Sequence[pa.Table]
) -> tuple[pa.Table, pa.Array, list[tuple[int, ...]]] | None:
    """The partials that a query of the pane set needs, and the queries that each serves in it."""
    if not made:
        return None
    whole = together(made)
    patterns = patterns_of(whole)
    assert patterns is not None, "partials of mappers say which queries they serve"
    mine = [q.selection for q in aggregate.plan.queries if q.query in own.queries]
    parts = [tuple(s for s in mine if rollup.selections[s] in pattern) for pattern in patterns]
    numbers = {part: n for n, part in enumerate(dict.fromkeys(parts))}
    local = np.array([numbers[part] for part in parts], dtype=np.int32)[whole.column("_bits").to_numpy()]
    if () in numbers:
        wanted = local != numbers[()]
        whole, local = whole.filter(pa.array(wanted)).combine_chunks(), local[wanted]
    return (whole, pa.array(local), list(numbers)) if len(whole) else None


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
