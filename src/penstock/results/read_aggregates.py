"""Committed results of window aggregates.

They are in files of single windows, of rows that stand for several windows, or of panes from which windows are
assembled; what tasks could not decide alone is decided on read. `read` has what joins and aggregates share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from penstock.columns.parcels import one_array
from penstock.columns.terms.evaluation import values
from penstock.kernels.aggregate.repeats import RUN, cut, written_out
from penstock.kernels.aggregate.results import leading
from penstock.model import Expression, Landmark, PerRow, Query, Ref, Sliding, SlidingRows, Stream, Top, UserAggregate
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE, PSEUDO_ROLE, WINDOW_START
from penstock.model.limits import MOST_SORTED
from penstock.planner.aggregate_tables import first_start
from penstock.planner.aggregates import is_cut_by_kernels, plan_of_panes
from penstock.planner.listed import bare
from penstock.planner.network import StandingQuery
from penstock.results.assemble import Assembly
from penstock.results.layout import FINAL, PANES, measure_column
from penstock.results.part import Part
from penstock.results.read import AT_ONCE, Listed, ResultView, StoredFile, is_computed
from penstock.state.manifest import Manifest
from penstock.state.registry import Bits, QueryRecord
from penstock.storage.store import Store


class AggregateView(ResultView):
    """An aggregated query's view on the result files of its aggregate.

    `own` are the users' aggregates. HAVING beyond the kernels, what may raise, and the first rows of a window among
    those that tasks kept are decided on read.
    """

    def __init__(
        self,
        store: Store,
        record: QueryRecord,
        query: Query,
        streams: Mapping[str, Stream],
        bits: Bits,
        own: Mapping[str, UserAggregate],
    ) -> None:
        super().__init__(store, record, query, streams, bits)
        assert query.aggregation is not None
        self.aggregation, self.own = query.aggregation, own
        window, having = query.aggregation.window, query.aggregation.having
        self.groups = [f"g{number}" for number in range(len(query.aggregation.groups))]
        self.window = window if isinstance(window, Sliding | Landmark) else None
        self.left_to_spark = having if having is not None and having.term is None else None
        # All rows of a window of time come in one step; a window of rows is in one task.
        self.over_tasks = None if isinstance(window, SlidingRows | PerRow) else query.aggregation.top
        # With early results each row has its revision (its step), and whether it is final.
        self._early = query.aggregation.emit is not None

    def tables(
        self, manifest: Manifest, part: Part, *, time: bool = False, at_once: int = AT_ONCE
    ) -> Iterator[pa.Table] | None:
        """The same rows without a Spark job; windows' first rows are chosen from all that tasks kept."""
        top, items = self.over_tasks, self._plain_items()
        if top is None or items is None:
            return super().tables(manifest, part, time=time, at_once=at_once)
        cut = is_cut_by_kernels(self.aggregation, self.own) and not self._early
        if not cut or self.count(manifest, part) > MOST_SORTED:
            return None
        read = {self._stored(ref): "" for key in top.keys for ref in key.expression.refs}
        held = list(self._stored_rows(manifest, part, [*self._read_for(items), *self.groups, *read], at_once))
        if not held:
            return iter(())
        best = self._leading(top, pa.concat_tables(held).combine_chunks())
        whole = self._selected(best, items, time=time)
        return (whole.slice(start, at_once) for start in range(0, len(whole), at_once))

    def stored(self, manifest: Manifest, part: Part) -> list[StoredFile] | None:
        return None if self.over_tasks is not None else super().stored(manifest, part)

    def _leading(self, top: Top, rows: pa.Table) -> pa.Table:
        """The first rows of each window."""

        def column(name: str) -> pa.Array:
            return one_array(rows.column(name))

        def lookup(ref: Ref) -> pa.Array:
            return column(self._stored(ref))

        terms = [key.expression.term for key in top.keys]
        keys = [lookup(t) if isinstance(t, Ref) else values(t, lookup, len(rows))[0] for t in terms if t is not None]
        groups = [column(name) for name in self.groups]
        return rows.filter(pa.array(leading(top, keys, groups, column("_time").to_numpy())))

    def _plain_items(self) -> list[str | Expression] | None:
        if self.left_to_spark is not None:
            return None
        found: list[str | Expression] = []
        for item, kind in zip(self.query.items, self.record.item_types, strict=False):  # early results have two more
            ref = bare(item.expression)
            if ref is None and not is_computed(item.expression, kind):
                return None
            found.append(item.expression if ref is None else self._stored(ref))
        return [*found, *(["_step", FINAL] if self._early else [])]

    def _pieces(self, manifest: Manifest, part: Part, at_once: int) -> Iterator[pa.Table]:
        assembly, window = self.assembly(manifest, part), self.window
        if assembly is not None:
            assert window is not None
            for runs in assembly.tables(0, 1):
                yield from written_out(runs, window, at_once, "_time")

    def _each(self, rows: pa.Table, part: Part, at_once: int) -> Iterator[pa.Table]:
        if self.window is None or RUN not in rows.column_names:
            return super()._each(rows, part, at_once)
        runs = cut(rows, self.window, part.horizon, part.before, "_time")
        return written_out(runs, self.window, at_once, "_time")

    def assembly(self, manifest: Manifest, part: Part) -> Assembly | None:
        """How windows are assembled from existing panes; None if there are none to show."""
        number = self.record.id
        closing = [f for f in manifest.results.of(number, since=part.since) if f.kind == PANES]
        closings = [c for c in {c for f in closing for c in f.closings} if part.includes(c[0])]
        if not closings:
            return None
        first, last = max(min(c[1] for c in closings), part.horizon - 1), max(c[2] for c in closings)
        files = [f for f in manifest.results.of(number, after=first) if f.kind == PANES]
        standing = StandingQuery(number, self.record.name, self.query, complete_from=self.record.complete_from)
        arguments = zip(self.aggregation.aggregates, self.record.types[1], strict=True)
        types = {a.argument: kind for a, kind in arguments if a.argument is not None}
        plan = plan_of_panes(number, self.aggregation, types, self.own)
        needed = [f for f in files if f.min_time < min(last, part.before)]
        return Assembly(
            self.store,
            plan,
            tuple((self.checked(f), self.bit(f.version)) for f in needed),
            tuple(closings),
            first_start(standing),
            part,
            tuple(measure_column(a) for a in self.aggregation.aggregates),
            sum(f.count(number) for f in files),
        )

    def items(self) -> list[Listed]:
        found = [(item.expression.sql(self.column), not item.expression.total) for item in self.query.items]
        found += [("_step", False), (FINAL, False)] if self._early else []
        facts = zip(found, self.record.item_types, self.record.item_names, strict=True)
        return [Listed(text, kind, name, risky) for (text, risky), kind, name in facts]

    def fields(self) -> dict[str, str]:
        fields = {"_time": "bigint", "_step": "bigint"} | ({FINAL: "boolean"} if self._early else {})
        groups, _, values = self.record.types
        others = [] if self.left_to_spark is None else [self.left_to_spark]
        if self.over_tasks is not None:
            others += [key.expression for key in self.over_tasks.keys]
            fields |= dict(zip(self.groups, groups, strict=True))
        for expression in (*(item.expression for item in self.query.items), *others):
            for ref in expression.refs:
                types = {GROUP_ROLE: groups, AGGREGATE_ROLE: values}.get(ref.role)
                fields[self._stored(ref)] = "bigint" if types is None else types[int(ref.column[1:])]
        return fields

    def column(self, ref: Ref) -> str:
        name = self._stored(ref)
        return f"timestamp_micros({name})" if ref.role == PSEUDO_ROLE and not self.streams[0].integer_time else name

    def _stored(self, ref: Ref) -> str:
        if ref.role == GROUP_ROLE:
            return ref.column
        if ref.role == AGGREGATE_ROLE:
            return measure_column(self.aggregation.aggregates[int(ref.column[1:])])
        return WINDOW_START if ref.column == WINDOW_START else "_time"
