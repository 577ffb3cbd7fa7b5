"""The deltas of a task's tables do not depend on its parcels, and no parcel is kept longer than needed."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.columns import parcels
from penstock.columns.parcels import PROBING, SEEN, STORED, pack, unpack
from penstock.kernels.delta import count_keys
from penstock.kernels.merge import merge_deltas
from penstock.model.memory import Limits
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.sql import parse_query
from penstock.state.buckets import BucketMap
from penstock.step import deltas as module
from penstock.step.deltas import Deltas
from penstock.step.mapper import Asked, Mapper, truth_words
from penstock.storage.local import LocalStore
from tests.effort import examples
from tests.step.test_mapper import NAMES, QUERIES, ROW, SLOTS, STREAMS, batch

SEQUENCED = {name: replace(stream, sequence="k") for name, stream in STREAMS.items()}


def network_of(texts, streams=SEQUENCED):
    queries = [StandingQuery(n + 1, f"q{n}", parse_query(text, streams)) for n, text in enumerate(texts)]
    return build_network(queries, streams)


def bodies_of(network, batches, replicated=frozenset(), tasks=1):
    """The parcels for task 0, as bytes, of a mapper for each batch."""
    asked = Asked(0, BucketMap.even(tasks), LocalStore("/nowhere"), MappingProxyType({}), replicated)
    for one in batches:
        for task, rows in Mapper(network, NAMES, truth_words(network), asked).take(one):
            if task == 0:
                yield from pack(rows)


def deltas_of(network, bodies, bound, piece=None):
    """By table and mark the delta of what the parcels bring; its pieces as one, if it is put aside in pieces."""
    limits = None if piece is None else Limits(piece, max(1, bound), 1, 1, 1)
    with mock.patch.object(module, "GATHERED_BYTES", bound):
        made = Deltas(network, truth_words(network), limits)
        for body in bodies:
            made.take(unpack(body))
        whole = made.whole()
    for index, pieces in whole.probing.items():
        assert all(one is other for one, other in zip(pieces, whole.stored[index], strict=True))
    if piece is None:
        assert not made.pieces
    for own in (whole.stored, whole.seen):
        for pieces in own.values():
            for delta in pieces:
                assert np.array_equal(np.lexsort((delta.rows.time, delta.rows.key)), np.arange(len(delta.rows)))
    return {
        (mark, index): pieces for mark, own in enumerate((whole.stored, whole.seen)) for index, pieces in own.items()
    }


def merged(network, index, pieces):
    return merge_deltas(network.tables[index], pieces)


def plain(table, delta):
    """Each row with its place: what rows are ordered by, and all that is stored of it."""
    rows = delta.rows
    kept = [rows.columns[name].to_pylist() for name in table.columns]
    last = rows.columns[table.sequence].to_pylist() if table.sequence else [None] * len(rows)
    places = zip(rows.key.tolist(), rows.time.tolist(), last, strict=True)
    roles = [tuple(sorted(rows.patterns[number])) for number in rows.bits]
    return [(place, repr((own, values))) for place, own, *values in zip(places, roles, *kept, strict=True)]


@settings(max_examples=examples(100))
@given(
    st.lists(st.sampled_from(QUERIES), min_size=1, max_size=6),
    st.lists(st.tuples(ROW, st.integers(0, 1)), max_size=40),
    st.integers(1, 2),
    st.sampled_from((0, 200, 2000, 1 << 30)),
    st.sampled_from((None, 0, 300, 3000)),
    st.data(),
)
def test_deltas_are_the_same_for_every_cut_and_order_of_the_rows(texts, drawn, tasks, bound, piece, data):
    network = network_of(texts)
    replicated = frozenset(
        data.draw(st.sets(st.sampled_from([t.index for t in network.tables if not t.grouped] or [0])))
    )
    whole = deltas_of(network, bodies_of(network, [batch(*_apart(drawn))], replicated, tasks), 1 << 30)
    shuffled = data.draw(st.permutations(drawn))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(drawn)), max_size=6)) | {0, len(drawn)})
    batches = [batch(*_apart(shuffled[a:b])) for a, b in pairwise(cuts)]
    with mock.patch.object(parcels, "MOST_BYTES", data.draw(st.sampled_from((300, 1 << 20)))):
        bodies = list(bodies_of(network, batches, replicated, tasks))
    found = deltas_of(network, bodies, bound, piece)
    event("in pieces" if any(len(pieces) > 1 for pieces in found.values()) else "whole")
    event("many parcels" if len(bodies) > 2 else "few parcels")
    assert found.keys() == whole.keys()
    for (mark, index), pieces in found.items():
        table, delta, (other,) = network.tables[index], merged(network, index, pieces), whole[mark, index]
        mine, theirs = plain(table, delta), plain(table, other)
        assert [place for place, _ in mine] == [place for place, _ in theirs]
        assert Counter(mine) == Counter(theirs)
        alone = {place for place, times in Counter(place for place, _ in mine).items() if times == 1}
        # Rows of one place have no order.
        assert [r for r in mine if r[0] in alone] == [r for r in theirs if r[0] in alone]
        assert (len(delta.rows), count_keys(pieces), delta.unwanted) == (
            len(other.rows), len(set(other.rows.key.tolist())), other.unwanted
        )  # fmt: skip


def test_rows_that_one_task_stores_may_probe_in_another():
    """Marks are separate, so that tasks may take turns with the rows of a key."""
    network = network_of(["SELECT x.v FROM a [RANGE 9] x, a [RANGE 9] y WHERE x.k = y.k"])
    table = network.tables_of("a")[0]
    (body,) = bodies_of(network, [batch(*_apart([(row, 0) for row in rows_of(9)]))])
    rows = unpack(body)
    masks = np.full_like(rows.masks, 1 << STORED)
    masks[:4] |= np.uint64(1 << PROBING)
    masks[6] = np.uint64(1 << PROBING)
    masks[7:] = np.uint64(1 << SEEN)
    made = Deltas(network, truth_words(network))
    made.take(replace(rows, masks=masks))
    found = made.whole()
    rows = [delta.rows for delta in found.stored[table.index]]
    assert sorted(v for own in rows for v in own.columns["v"].to_pylist()) == [0, 0, 1, 2, 3, 4]
    assert [len(delta.rows) for delta in found.probing[table.index]] == [4, 1]
    assert [len(delta.rows) for delta in found.seen[table.index]] == [2]


def _apart(drawn):
    return [row for row, _ in drawn], [tag for _, tag in drawn]


def rows_of(count, first=0):
    return [
        {"at": first + n, "k": n % 7, "n": n, "s": "s" * 9, "d": 0.5, "v": n % 5, "wide": "w" * 100}
        for n in range(count)
    ]


@pytest.mark.parametrize("bound", [0, 40_000])
def test_of_a_parcel_only_what_tables_store_is_held_when_the_next_one_comes(monkeypatch, bound):
    """`wide` decides about rows, and no table stores it."""
    network = network_of(["SELECT x.v FROM a [RANGE 9] x, b [RANGE 9] y WHERE x.k = y.k AND x.wide >= 'w'"], STREAMS)
    monkeypatch.setattr(module, "GATHERED_BYTES", bound)
    bodies = [
        body.to_pybytes()
        for body in bodies_of(network, (batch(rows_of(500, n), [0] * 500) for n in range(0, 20_000, 500)))
    ]
    assert min(map(len, bodies)) > 50_000
    made, held, before = Deltas(network, truth_words(network)), [], pa.total_allocated_bytes()
    for body in bodies:
        sent = pa.allocate_buffer(len(body))
        np.frombuffer(sent, dtype=np.uint8)[:] = np.frombuffer(body, dtype=np.uint8)
        parcel = unpack(sent)
        del sent
        made.take(parcel)
        del parcel
        held.append(pa.total_allocated_bytes() - before)
    ((delta,),) = made.whole().stored.values()
    assert len(delta.rows) == 500 * len(bodies)
    assert max(held) < len(bodies) * 500 * 16  # the stored column; parcels have more than 100 bytes a row


def test_small_parcels_are_sorted_together(monkeypatch):
    network = network_of(QUERIES[:1], STREAMS)
    bodies = list(bodies_of(network, (batch(rows_of(50, n), [0] * 50) for n in range(0, 500, 50))))
    built = []
    monkeypatch.setattr(module, "build_delta", lambda *args, own=module.build_delta: built.append(1) or own(*args))
    deltas_of(network, bodies, 1 << 20)
    assert len(built) == 1


def test_a_mapper_holds_one_parcel_for_a_task_at_a_time(monkeypatch):
    network = network_of(QUERIES[:1], STREAMS)
    monkeypatch.setattr(parcels, "MOST_BYTES", 4096)
    asked = Asked(0, BucketMap.even(2), LocalStore("/nowhere"), MappingProxyType({}))
    mapper = Mapper(network, {**NAMES, "a": SLOTS}, truth_words(network), asked)
    sizes = [rows.nbytes for _, rows in mapper.take(batch(rows_of(2000), [0] * 2000))]
    assert len(sizes) > 10
    assert max(sizes) < 2 * 4096
