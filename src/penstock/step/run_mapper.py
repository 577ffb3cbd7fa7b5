"""One mapper of a step: its rows, and pieces that it reads itself, become parcels for the tasks, and its account."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from penstock.columns.parcels import pack
from penstock.step.envelope import ACCOUNT, PARTIALS, ROWS, parcel
from penstock.step.folding import pack_partials
from penstock.step.frugal import frugal
from penstock.step.mapper import Asked, Mapper
from penstock.step.pieces import Piece
from penstock.step.task import Plan


def run_mapper(
    batches: Iterable[tuple[pa.RecordBatch, Sequence[Piece]]], plan: Plan, asked: Asked
) -> Iterator[pa.RecordBatch]:
    """What a mapper sends for its batches, and for the pieces that it must read with each of them."""
    with frugal(asked.limits):
        yield from _mapped(batches, plan, asked)


def _mapped(
    batches: Iterable[tuple[pa.RecordBatch, Sequence[Piece]]], plan: Plan, asked: Asked
) -> Iterator[pa.RecordBatch]:
    mapper = Mapper(plan.network, plan.names, plan.truths, asked, listed=plan.listed)
    for batch, pieces in batches:
        for found in (mapper.take(batch), *(mapper.read(piece, plan.types) for piece in pieces)):
            for to, its in found:
                mapper.account.count_sent(rows=len(its.masks))
                for body in pack(its, asked.parcel):
                    mapper.account.count_sent(size=len(body))
                    yield parcel(to, ROWS, body)
                del its, body  # one parcel at a time
        yield from _folded(mapper, rest=False)
    yield from _folded(mapper, rest=True)
    yield parcel(0, ACCOUNT, mapper.told().encode())


def _folded(mapper: Mapper, *, rest: bool) -> Iterator[pa.RecordBatch]:
    """The partials that a mapper sends: the rest of them, or what cannot wait."""
    for to, partials in mapper.partials(rest=rest):
        mapper.account.count_sent(rows=len(partials.partials))
        for body in pack_partials(partials, mapper.asked.parcel):
            mapper.account.count_sent(size=len(body))
            yield parcel(to, PARTIALS, body)
