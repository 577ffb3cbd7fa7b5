"""Results that a mapper finds by itself: rows of one stream that a query wants, written as its select list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.columns.terms.evaluation import Evaluation
from penstock.kernels.matches import time_array
from penstock.kernels.probe import Words
from penstock.model import Expression, Ref, Stream
from penstock.model.expression import PSEUDO_ROLE
from penstock.model.memory import Limits
from penstock.planner.join import Member
from penstock.planner.listed import bare
from penstock.planner.network import Network
from penstock.planner.state_table import StateTable
from penstock.results.layout import OWN
from penstock.state.run import Ints
from penstock.state.suspension import Suspension
from penstock.step.bound import Bound
from penstock.step.keys import Valid
from penstock.step.report import Report
from penstock.step.results import Schemas, has_bit
from penstock.step.rows import RowFile, relieve
from penstock.storage.store import Store


@dataclass
class Answers:
    """The results that one mapper has found so far, in a file for each query."""

    network: Network
    store: Store
    step: int
    schemas: Schemas
    bound: Bound
    limits: Limits | None = None
    refused: dict[int, Suspension] = field(default_factory=dict)
    errors: dict[int, int] = field(default_factory=dict)
    _files: dict[int, tuple[str, RowFile]] = field(default_factory=dict)

    def take(
        self,
        table: StateTable,
        columns: Mapping[str, pa.Array],
        bits: Words,
        rows: Valid,
        raised: Mapping[str, Valid],
    ) -> None:
        """Write the results of these rows for each query of a table; `bits` are the entries that each row serves.

        `raised` says, by watched predicate, where an item could not be computed: it is NULL there.
        """
        join = self.network.joins[table.entries[0].join]
        stream = self.network.streams[table.stream]
        members = {member.id: member for member in join.members}
        for bit, entry in enumerate(table.entries):
            index = np.flatnonzero(rows & has_bit(bits, bit))
            if len(index) == 0 or entry.query in self.refused:
                continue
            _, file = self._files.setdefault(entry.query, (join.name, RowFile(self.store, self.step)))
            why = self.bound.passed(file.rows + len(index), file.bytes)
            if why is not None:
                self.refused[entry.query] = why
                file.abandon()
                continue
            watched = [raised[name][index] for name in entry.truths if name in raised]
            self._count(entry.query, np.logical_or.reduce(watched) if watched else np.zeros(0, dtype=np.bool_))
            found = self._listed(members[entry.query], stream, columns, index)
            file.add(found, columns["_ts"].take(pa.array(index)).to_numpy())
            if self.limits is not None:
                relieve((file for _, file in self._files.values()), self.limits.work)

    def _count(self, query: int, raised: Valid) -> None:
        if raised.any():
            self.errors[query] = self.errors.get(query, 0) + int(raised.sum())

    def tell(self, account: Report) -> None:
        """End the files, and report them."""
        for query, (join, file) in self._files.items():
            if query not in self.refused and file.close():
                account.add_file(file.file(join, self.network.version, [(query, file.rows)], OWN))
        account.refused.update(self.refused)
        for query, count in self.errors.items():
            account.query(query).errors += count

    def _listed(self, member: Member, stream: Stream, columns: Mapping[str, pa.Array], index: Ints) -> pa.Table:
        """The select list of a query over the rows at those places."""
        whole = len(index) == len(columns["_ts"])
        places = pa.array(index)

        def column(name: str) -> pa.Array:
            return columns[name] if whole else columns[name].take(places)

        def known(ref: Ref) -> pa.Array:
            timed = ref.role == PSEUDO_ROLE or ref.column == stream.event_time
            return column("_ts" if timed else ref.column)

        evaluation = Evaluation(known, len(index))

        def item(expression: Expression, kind: pa.DataType) -> pa.Array:
            ref = bare(expression)
            if ref is None:
                assert expression.term is not None
                found, raised = evaluation.values(expression.term)
                self._count(member.id, raised)
                return found.cast(kind)
            if ref.role == PSEUDO_ROLE or ref.column == stream.event_time:
                return time_array(column("_ts").to_numpy(), kind)
            return column(ref.column).cast(kind)

        schema = self.schemas[member.id]
        found = [item(expression, wanted.type) for expression, wanted in zip(member.listed, schema, strict=True)]
        return pa.table(found, schema=schema)
