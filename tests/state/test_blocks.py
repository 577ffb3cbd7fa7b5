"""Runs of several blocks give back their rows, hot or cold; a block that is not read cannot have a match."""

from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.state.blocks import Blocks, BlockWriter
from penstock.state.cold import BlockCache, Cold
from penstock.state.run import Rows
from tests.effort import examples
from tests.state.runs import entry_of
from tests.state.test_run import same

TYPES = {"s": pa.string(), "n": pa.int64()}


def block(keys, first):
    keys = sorted(keys)
    texts = pa.array([f"{first}-{n}" if n % 3 else None for n in range(len(keys))], pa.string())
    numbers = pa.array(range(len(keys)), pa.int64())
    return Rows(
        np.array(keys, dtype=np.int64),
        np.arange(first, first + len(keys)),
        (np.arange(len(keys)) % 2).astype(np.int32),
        ((16,), (17, first)),
        {"s": texts, "n": numbers},
    )


def written(blocks, *, cold):
    file = BytesIO()
    writer = BlockWriter(file, "a(k)", TYPES, cold=cold)
    for rows in blocks:
        writer.add(rows)
    size, checksum = writer.close()
    entry = entry_of(rows=sum(map(len, blocks)), bytes=size, checksum=checksum, blocks=len(blocks), cold=cold)
    return pa.py_buffer(file.getvalue()), entry


KEYS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20), min_size=1, max_size=30)


@settings(max_examples=examples(100))
@given(st.lists(KEYS, min_size=1, max_size=4), st.booleans())
def test_blocks_come_back_whole_and_by_column(drawn, cold):
    blocks = [block(keys, 100 * n) for n, keys in enumerate(drawn)]
    data, entry = written(blocks, cold=cold)
    run = Blocks(data, entry)
    for number, rows in enumerate(blocks):
        assert same(run.rows(number), rows)
        some = run.rows(number, ["n"])
        assert list(some.columns) == ["n"]
        assert some.key.tolist() == rows.key.tolist()


@settings(max_examples=examples(200))
@given(KEYS, KEYS, st.integers(-5, 40), st.integers(0, 9), st.data())
def test_a_block_that_need_not_be_read_has_no_row_in_question(stored, asked, first, span, data):
    data_, entry = written([block(stored, 0)], cold=True)
    low = data.draw(st.sampled_from((-(2**63), 0)))
    cold = Cold(Blocks(data_, entry), 0, BlockCache(), low, None)
    rows, keys = cold.rows(), np.array(sorted(asked), dtype=np.int64)
    matching = np.isin(rows.key, keys) & (rows.time >= first) & (rows.time <= first + span)
    if matching.any():
        assert cold.may_match(keys, first, first + span)
    assert rows.key.tolist() == [key for key in sorted(stored) if key >= low]
    assert cold.head().key.tolist() == rows.key.tolist()


def test_filters_leave_out_most_blocks_without_a_key():
    chance = np.random.default_rng(0)
    data, entry = written([block(chance.integers(-(2**62), 2**62, 1000).tolist(), 0)], cold=True)
    own = Blocks(data, entry).index[0]
    others = chance.integers(-(2**62), 2**62, 2000)
    assert sum(own.may_have(np.array([key])) for key in others) < 0.04 * len(others)


def test_the_cache_is_bounded_and_forgets_what_was_used_least_lately():
    blocks = [block(range(100), 100 * n) for n in range(5)]
    data, entry = written(blocks, cold=True)
    run = Blocks(data, entry)
    cache = BlockCache(most=2 * run.index[4].size)
    for number in (0, 1, 0, 2):
        cache.get(run, number, whole=True)
    assert {place[1] for place in cache._rows} == {0, 2}
    cache.keep([])
    assert not cache._rows


@pytest.mark.parametrize("where", ["block", "index", "end"])
def test_damage_is_reported(where):
    data, entry = written([block(range(100), 0), block(range(100), 9)], cold=True)
    broken = bytearray(data.to_pybytes())
    place = {"block": Blocks(data, entry).index[1].start + 70, "index": len(broken) - 20, "end": None}[where]
    if place is None:
        broken = broken[:-5]
    else:
        broken[place] ^= 1
    with pytest.raises(StateError, match="is damaged"):
        Blocks(pa.py_buffer(bytes(broken)), entry, "state/runs/x").rows(1)
