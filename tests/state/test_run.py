import json

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.model.time import FOREVER
from penstock.state.buckets import BUCKETS, bucket_of
from penstock.state.run import (
    PARTS,
    Rows,
    RunEntry,
    checksum,
    decode_run,
    encode_run,
    expiry,
    fading,
)
from tests.effort import examples
from tests.state.runs import encoded, entry_of, rows_of

KEYS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from((-(2**63), -1, 0, 1, 2**63 - 1)))


def same(one, other):
    return (
        one.key.tolist() == other.key.tolist()
        and one.time.tolist() == other.time.tolist()
        and [one.patterns[b] for b in one.bits] == [other.patterns[b] for b in other.bits]
        and {n: c.to_pylist() for n, c in one.columns.items()} == {n: c.to_pylist() for n, c in other.columns.items()}
    )


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(KEYS, st.integers(-9, 9), st.integers(0, 2), st.one_of(st.none(), st.text())), min_size=1))
def test_rows_come_back_from_their_bytes(rows):
    rows.sort(key=lambda r: r[:2])
    key, time, bits, text = zip(*rows, strict=True)
    written = Rows(
        np.array(key, dtype=np.int64),
        np.array(time, dtype=np.int64),
        np.array(bits, dtype=np.int32),
        ((16,), (17, 32), (1000,)),
        {"s": pa.array(text, pa.string()), "n": pa.array([None] * len(rows), pa.float64())},
    )
    data, entry = encoded(written)
    read = decode_run(data, entry)
    assert same(read, written)
    assert {n: c.type for n, c in read.columns.items()} == {n: c.type for n, c in written.columns.items()}
    assert not read.key.flags.writeable


def test_the_footer_tells_the_table_the_times_and_where_each_bucket_starts():
    keys = [-(2**63), -(2**63) + 5, -1, 0, 2**56, 2**63 - 1]
    data = encode_run(rows_of(keys, [4, 2, 7, 1, 3, 5]), "a(k)")
    footer = json.loads(pa.ipc.open_file(data).schema.metadata[b"penstock"])
    assert (footer["table"], footer["min_time"], footer["max_time"]) == ("a(k)", 1, 7)
    starts = [0, *footer["buckets"]]
    assert len(starts) == BUCKETS
    assert starts == [sum(bucket_of(k) < b for k in keys) for b in range(BUCKETS)]


@pytest.mark.parametrize("where", [0, 0.1, 0.5, 0.9, -1])
def test_a_damaged_byte_is_found_and_the_file_named(where):
    data, entry = encoded(rows_of(range(100), v=pa.array(range(100))))
    broken = bytearray(data.to_pybytes())
    broken[int(where * len(broken)) if where >= 0 else -1] ^= 1
    with pytest.raises(StateError, match=r"runs/0-a\.arrow is damaged.*restore it from a backup"):
        decode_run(pa.py_buffer(bytes(broken)), entry)


@pytest.mark.parametrize("lost", [1, 8, 100, None])
def test_a_truncated_file_is_found_and_named(lost):
    data, entry = encoded(rows_of(range(100)))
    with pytest.raises(StateError, match=r"runs/0-a\.arrow is damaged"):
        decode_run(data.slice(0, data.size - lost if lost else 0), entry)


def test_another_file_under_the_name_is_found():
    data, _ = encoded(rows_of([1, 2]))
    _, entry = encoded(rows_of([1, 3]))
    with pytest.raises(StateError):
        decode_run(data, entry)


@given(st.lists(KEYS).map(sorted), KEYS, KEYS, st.booleans())
def test_a_slice_is_the_rows_of_a_range_of_keys(keys, one, other, unlimited):
    low, high = min(one, other), None if unlimited else max(one, other)
    rows = rows_of(keys, n=pa.array(range(len(keys)), pa.int64()))
    inside = [(k, n) for n, k in enumerate(keys) if low <= k and (high is None or k < high)]
    found = rows.between(low, high)
    assert found.key.tolist() == [k for k, _ in inside]
    assert found.time.tolist() == found.columns["n"].to_pylist() == [n for _, n in inside]
    assert len(found.bits) == len(found) == len(inside)


def test_a_slice_can_be_written_as_a_run_of_its_own():
    part = rows_of(range(10), n=pa.array(range(10))).between(3, 7)
    data, entry = encoded(part)
    assert same(decode_run(data, entry), part)


# ------------------------------------------------------------------------------------------------------------ expiry


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2)), min_size=1, max_size=8),
    st.fixed_dictionaries({s: st.integers(0, 40) for s in "bc"}),
)
def test_a_run_has_expired_when_each_of_its_rows_is_out_of_reach(rows, progress):
    lives = {16: (("b", 5), ("c", 9)), 32: (("c", 2),), 48: (("b", FOREVER),)}
    patterns = ((16,), (32, 999), (16, 32))
    run = Rows(
        np.zeros(len(rows), dtype=np.int64),
        np.array([t for t, _ in rows], dtype=np.int64),
        np.array([p for _, p in rows], dtype=np.int32),
        patterns,
        {},
    )
    entry = entry_of(until=tuple(expiry(run, lives, FOREVER).items()))
    needed = any(
        progress[stream] < time + life
        for time, pattern in rows
        for role in patterns[pattern]
        for stream, life in lives.get(role, ())
    )
    assert entry.expired(progress) is not needed


def test_a_run_lasts_as_long_as_progress_is_unknown_and_one_without_end_until_the_stream_ends():
    assert not entry_of(until=(("b", 5),)).expired({})
    assert entry_of(until=(("b", 5),)).expired({"b": 5})
    assert not entry_of(until=(("b", 5),)).expired({"b": 4})
    assert not entry_of(until=(("b", FOREVER),)).expired({"b": FOREVER - 1})
    assert entry_of(until=(("b", FOREVER),)).expired({"b": FOREVER})


def test_a_pattern_that_no_row_has_any_more_keeps_no_run():
    rows = rows_of([1], [3])
    wider = Rows(rows.key, rows.time, rows.bits, (*rows.patterns, (48,)), {})
    assert expiry(wider, {16: (("b", 5),), 48: (("b", FOREVER),)}, FOREVER) == {"b": 8}


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=40),
    st.integers(0, 60),
    st.integers(0, 5),
)
def test_no_more_rows_are_said_to_be_gone_than_are_and_at_most_a_part_less(rows, progress, ahead):
    lives = {16: (("b", 5), ("c", 5)), 32: (("c", 20), ("b", 20)), 48: (("b", FOREVER),)}
    patterns = ((16,), (32, 16), (48,))
    run = Rows(
        np.zeros(len(rows), dtype=np.int64),
        np.array([t for t, _ in rows], dtype=np.int64),
        np.array([p for _, p in rows], dtype=np.int32),
        patterns,
        {},
    )
    until = tuple(expiry(run, lives, FOREVER).items())
    entry = entry_of(rows=len(rows), until=until, fades=fading(run, lives, FOREVER))
    longest = (5, 20, FOREVER)
    gone = sum(time + longest[pattern] <= progress for time, pattern in rows)
    assert gone - len(rows) / PARTS <= entry.gone({"b": progress, "c": progress}) <= gone
    assert entry.gone({"b": progress, "c": progress + ahead}) <= gone
    assert entry.gone({}) == 0


def test_a_line_of_the_manifest_comes_back_from_json():
    times = {"min_time": -3, "quantiles": (1, 7), "fades": (4, 5, 6, 6, 6, 8, 2**62)}
    entry = entry_of(until=(("b", 5), ("c", 2**62)), min_key=-(2**63), max_key=2**63 - 1, checksum=2**32 - 1, **times)
    assert msgspec.json.decode(msgspec.json.encode(entry), type=RunEntry) == entry


def test_the_checksum_is_that_of_the_bytes():
    data, entry = encoded(rows_of([1]))
    assert checksum(data) == checksum(pa.py_buffer(data.to_pybytes())) == entry.checksum
