"""What must not change an aggregate: arrival, cuts, coarser progress, several sources, time unit and origin, plan."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from lab.adaptwid.operator import AdaptWid, Row
from penstock.model import Aggregate, Aggregation, Sliding
from penstock.model.time import FOREVER, NEVER
from penstock.sql import parse_query
from tests.aggregates import STREAMS
from tests.effort import examples
from tests.kernels.aggregate.scenes import (
    SESSIONS,
    SLIDING,
    assert_same,
    batches,
    column,
    items,
    run,
)  # fmt: skip

CALLS = (
    Aggregate("count", None),
    Aggregate("sum", column("x")),
    Aggregate("max", column("d")),
    Aggregate("avg", column("i")),
)
WINDOWS = st.one_of(SLIDING, SESSIONS)


def answer(window, parts, *, groups=("k",), calls=CALLS, wanted=None):
    """All results of one query."""
    found, left = run({0: Aggregation(window, items(*groups), calls, None)}, parts, wanted=wanted)
    assert all(kept is None for _, kept in left)
    return found[0]


@settings(max_examples=examples(80), deadline=None)
@given(WINDOWS, batches(), st.randoms(use_true_random=False))
def test_arrival_and_cuts_change_nothing(window, parts, chance):
    rows = [row for part, _ in parts for row in part]
    wanted = answer(window, parts)
    chance.shuffle(rows)
    cut = chance.randint(0, len(rows))
    assert_same(answer(window, [(rows[:cut], NEVER), (rows[cut:], NEVER)]), wanted)


@settings(max_examples=examples(80), deadline=None)
@given(WINDOWS, batches(), st.lists(st.booleans(), min_size=6, max_size=6))
def test_progress_that_is_stated_later_changes_nothing_but_when(window, parts, said):
    coarse, known = [], NEVER
    for (rows, reached), told in zip(parts, said, strict=False):
        known = reached if told else known
        coarse.append((rows, known))
    assert_same(answer(window, coarse), answer(window, parts))


@settings(max_examples=examples(80), deadline=None)
@given(WINDOWS, batches(), st.integers(2, 3))
def test_a_stream_dealt_to_several_sources_is_the_same_stream(window, parts, sources):
    """Each source is a part of its own, and progress is that of the slowest: what a union states."""
    dealt = []
    for (rows, _), reached in zip(parts, [NEVER, *(r for _, r in parts)], strict=False):
        shares = [rows[source::sources] for source in range(sources)]
        dealt += [(share, reached) for share in shares]
    assert_same(answer(window, dealt), answer(window, parts))


@settings(max_examples=examples(80), deadline=None)
@given(SLIDING, batches(), st.integers(-30, 30), st.integers(1, 4))
def test_results_shift_and_scale_with_time(window, parts, shift, factor):
    moved = [
        ([{**row, "ts": row["ts"] * factor + shift} for row in rows],
         reached * factor + shift if reached > NEVER else NEVER)
        for rows, reached in parts
    ]  # fmt: skip
    other = Sliding(window.range * factor, window.slide * factor, (window.origin or 0) * factor + shift)
    if window.origin is None:  # windows without an origin begin before it
        other = replace(other, origin=None)
        moved = [([{**r, "ts": r["ts"] - shift} for r in rows], p - shift if p > NEVER else p) for rows, p in moved]
        shift = 0
    wanted = [(g, s * factor + shift, e * factor + shift, v) for g, s, e, v in answer(window, parts)]
    assert_same(answer(other, moved), wanted)


@settings(max_examples=examples(80), deadline=None)
@given(SLIDING, batches())
def test_finer_groups_add_up_to_coarser_ones(window, parts):
    calls = (Aggregate("count", None), Aggregate("count", column("x")), Aggregate("sum", column("i")))
    total = {}
    for (k, _), start, end, (rows, valued, added) in answer(window, parts, groups=("k", "s"), calls=calls):
        known = total.setdefault((k, start, end), [0, 0, None])
        known[0] += rows
        known[1] += valued
        known[2] = known[2] if added is None else added + (known[2] or 0)
    wanted = [((k,), start, end, tuple(values)) for (k, start, end), values in total.items()]
    assert_same(answer(window, parts, calls=calls), wanted)


@settings(max_examples=examples(80), deadline=None)
@given(SLIDING.filter(lambda w: w.origin is None), batches())
def test_all_plans_and_the_literal_operator_agree(window, parts):
    calls = (Aggregate("count", None), Aggregate("sum", column("k")), Aggregate("max", column("k")))
    known = [([row for row in rows if row["k"] is not None], reached) for rows, reached in parts]
    wanted = answer(window, known, calls=calls)
    for plan in ("wid", "paned", "buffered"):
        assert_same(answer(window, known, calls=calls, wanted=plan), wanted)
    for policy in ("adapt", "eager", "lazy"):
        literal = AdaptWid(window, 1.0, 1.0, policy)
        for rows, reached in known:
            for row in rows:
                literal.arrive(Row(row["ts"], row["k"], row["k"]))
            if reached > NEVER:
                literal.punctuate(reached)
        literal.punctuate(FOREVER)
        found = [((r.key,), *window.extent(r.window), (r.rows, r.total, r.greatest)) for r in literal.results]
        assert_same(found, wanted)


def test_a_range_as_long_as_its_slide_tumbles():
    sliding, tumbling = (
        parse_query(f"SELECT count(*) FROM s [{window}]", STREAMS).aggregation.window
        for window in ("RANGE 5 SLIDE 5", "TUMBLING 5")
    )
    assert sliding == tumbling
