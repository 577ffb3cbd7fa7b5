"""Baselines for disorder: right where they must be, and with the shapes of the published figures."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.disorder.flush import TwoLevels
from lab.disorder.joins import InputBufferedJoin, OrderAgnosticJoin, OutputBufferedJoin, Timed
from lab.disorder.merge import Meld, Merge
from lab.disorder.ring import Load, Ring, keeps_up, sustained_rate
from lab.disorder.slack import SlackCount, wrong_share
from lab.disorder.windows import PunctuatedCount, Sliding, true_counts
from lab.workload import LabError
from penstock.model.time import FOREVER

WINDOWS = st.builds(Sliding, st.integers(1, 9), st.integers(1, 5))


@given(WINDOWS, st.integers(-20, 20))
def test_a_time_is_in_exactly_the_windows_that_hold_it(windows, time):
    held = [w for w in range(-40, 40) if windows.end(w) - windows.length <= time < windows.end(w)]
    assert list(windows.wids(time)) == held


@given(WINDOWS, st.lists(st.integers(0, 30), max_size=15), st.integers(0, 30))
def test_punctuation_answers_every_window_right_whatever_the_order(windows, times, jump):
    count = PunctuatedCount(windows)
    for number, time in enumerate(times):
        count.arrive(time)
        count.punctuate(min([*times[number + 1 :], jump]))
    count.punctuate(FOREVER)
    assert count.answers == dict(true_counts(windows, times))
    assert count.counts.state == 0


@pytest.mark.parametrize("policy", ["consistent", "generous"])
@given(windows=WINDOWS, times=st.lists(st.integers(0, 30), max_size=15))
def test_slack_as_long_as_the_disorder_is_exact(policy, windows, times):
    disorder = max((max(times[: n + 1]) - t for n, t in enumerate(times)), default=0)
    count = SlackCount(windows, disorder, policy)
    for time in times:
        count.arrive(time)
    count.finish()
    assert count.answers == dict(true_counts(windows, times))
    assert count.dropped == 0


@given(WINDOWS, st.lists(st.integers(0, 30), max_size=15), st.integers(0, 6))
def test_generous_slack_counts_no_fewer_rows_than_consistent_and_none_too_many(windows, times, slack):
    found = {}
    for policy in ("consistent", "generous"):
        found[policy] = count = SlackCount(windows, slack, policy)
        for time in times:
            count.arrive(time)
        count.finish()
    truth = true_counts(windows, times)
    for window, rows in truth.items():
        strict, kind = (found[p].answers.get(window, 0) for p in ("consistent", "generous"))
        assert strict <= kind <= rows


def test_slack_and_flush_have_named_policies():
    with pytest.raises(LabError):
        SlackCount(Sliding(1, 1), 0, "hopeful")
    with pytest.raises(LabError):
        TwoLevels(4, "never")


def blocks(length, number, step=5, seed=7):
    """Blocks of time in order, shuffled inside."""
    draw = random.Random(seed)
    found = []
    for block in range(number):
        times = list(range(block * length, (block + 1) * length, step))
        draw.shuffle(times)
        found.append(times)
    return found


def test_blocks_shuffled_inside_punctuation_is_right_at_once_and_slack_only_with_a_whole_block():
    """The shape of Fig. 6-12."""
    windows, data = Sliding(600, 60), blocks(490, 12)
    times = [t for block in data for t in block]
    told = PunctuatedCount(windows)
    for number, block in enumerate(data):
        for time in block:
            told.arrive(time)
        told.punctuate((number + 1) * 490)
    told.punctuate(FOREVER)
    truth = dict(true_counts(windows, times))
    assert wrong_share(told.answers, truth) == 0

    def run(slack):
        count = SlackCount(windows, slack, "consistent")
        behind = []
        for number, time in enumerate(times):
            # In blocks: how many have come in when a window is answered, beyond the block that completes it.
            behind += [number / 98 - windows.end(w) / 490 for w in count.arrive(time)]
        count.finish()
        return wrong_share(count.answers, truth), sum(behind) / max(1, len(behind))

    wrong = {slack: run(slack) for slack in (0, 55, 109, 218, 327, 434, 491, 600)}
    assert all(wrong[slack][0] > 0 for slack in (0, 55, 109, 218, 327, 434))
    assert wrong[491][0] == wrong[600][0] == 0
    assert wrong[600][1] > wrong[0][1]


def test_band_disorder_errors_fall_with_slack_and_generous_ones_are_smaller():
    """The shape of Fig. 6-11."""
    draw, windows = random.Random(3), Sliding(64, 7)
    arrivals = sorted((t + draw.randint(0, 32), t) for t in range(3000))
    times = [t for _, t in arrivals]
    truth = true_counts(windows, times)
    errors = {}
    for policy in ("consistent", "generous"):
        for slack in (0, 8, 16, 24, 33):
            count = SlackCount(windows, slack, policy)
            for time in times:
                count.arrive(time)
            count.finish()
            errors[policy, slack] = sum(truth[w] - count.answers.get(w, 0) for w in truth)
    for policy in ("consistent", "generous"):
        falling = [errors[policy, slack] for slack in (0, 8, 16, 24, 33)]
        assert falling == sorted(falling, reverse=True)
        assert falling[-1] == 0
    assert all(errors["generous", s] < errors["consistent", s] for s in (0, 8, 16))


@given(
    st.lists(st.lists(st.integers(0, 20), max_size=6).map(sorted), min_size=2, max_size=3),
    st.randoms(use_true_random=False),
)
def test_merge_gives_all_rows_in_order_and_meld_all_at_once(inputs, draw):
    merge, meld = Merge(len(inputs)), Meld(len(inputs))
    left = [list(own) for own in inputs]
    while any(left):
        source = draw.choice([n for n, own in enumerate(left) if own])
        time = left[source].pop(0)
        for union in (merge, meld):
            union.arrive(source, time)
        meld.punctuate(source, time)
    for source in range(len(inputs)):
        merge.punctuate(source, FOREVER)
        meld.punctuate(source, FOREVER)
    assert merge.output == sorted(t for own in inputs for t in own)
    assert Counter(meld.output) == Counter(merge.output)
    assert merge.counts.state == 0
    assert meld.stated == sorted(set(meld.stated))


def test_meld_states_progress_once():
    meld = Meld(2)
    assert [meld.punctuate(0, 20), *(meld.punctuate(1, v) for v in (20, 21, 22))] == [None, 20, None, None]


def test_under_skew_a_merge_holds_rows_and_a_meld_only_open_windows():
    """The shapes of Figs 8-8 and 8-11: linear in skew against (nearly) flat."""
    windows, peaks = Sliding(10, 10), {}
    for skew in (0, 100, 200, 400):
        merge, count, meld = Merge(2), PunctuatedCount(windows), Meld(2)
        for now in range(1000):
            for source, time in ((0, now), (1, now - skew)):
                if time < 0:
                    continue
                merge.arrive(source, time)
                count.arrive(time)
                if (bound := meld.punctuate(source, time)) is not None:
                    count.punctuate(bound)
        peaks[skew] = merge.counts.peak_state, count.counts.peak_state
    held = [peaks[skew][0] for skew in (100, 200, 400)]
    assert held[1] - held[0] == pytest.approx(100, abs=3)
    assert held[2] - held[1] == pytest.approx(200, abs=3)
    assert all(peaks[skew][1] <= skew // 10 + 2 for skew in peaks)


@st.composite
def two_streams(draw):
    """Rows of two streams in any order, each with punctuations that the rest keeps, ended by one for ever."""
    streams = []
    for _ in range(2):
        rows = draw(st.lists(st.builds(Timed, st.integers(0, 15), st.integers(0, 2), st.integers(0, 99)), max_size=8))
        events = []
        for number, row in enumerate(rows):
            events.append(("row", row))
            if draw(st.booleans()):
                events.append(("bound", min((r.time for r in rows[number + 1 :]), default=FOREVER)))
        streams.append([*events, ("bound", FOREVER)])
    order = draw(st.permutations([0] * len(streams[0]) + [1] * len(streams[1])))
    return [(source, streams[source].pop(0)) for source in order]


@given(two_streams(), st.tuples(st.integers(1, 8), st.integers(1, 8)))
def test_all_joins_give_the_same_pairs_and_the_buffered_ones_in_order(events, lengths):
    rows = [[e[1] for s, e in events if s == side and e[0] == "row"] for side in (0, 1)]
    wanted = Counter(
        (x, y) for x in rows[0] for y in rows[1] if x.key == y.key and -lengths[1] < y.time - x.time < lengths[0]
    )
    for kind in (OrderAgnosticJoin, OutputBufferedJoin, InputBufferedJoin):
        join = kind(lengths)
        for source, (what, value) in events:
            before, stated = len(join.output), join.progress
            (join.arrive if what == "row" else join.punctuate)(source, value)
            assert all(pair[0].time >= stated for pair in join.output[before:]) or kind is not OrderAgnosticJoin
        assert Counter(join.output) == wanted
        assert join.counts.state == 0
        if kind is not OrderAgnosticJoin:
            times = [pair[0].time for pair in join.output]
            assert times == sorted(times)


@given(two_streams(), st.tuples(st.integers(1, 8), st.integers(1, 8)))
def test_progress_of_both_times_is_sound_for_any_skew_and_never_later_than_that_of_one(events, lengths):
    join, last = OrderAgnosticJoin(lengths), None
    band = [(x, y) for x in range(16) for y in range(16) if -lengths[1] < y - x < lengths[0]]
    for source, (what, value) in events:
        before, box = len(join.output), join.box
        assert last is None or all(now >= then for now, then in zip(box, last, strict=True))
        last = box
        one, other = join.progress, min(join.bounds[1], join.bounds[0] - lengths[1] + 1)
        for x, y in band:
            over = x < box[0] and y < box[1]
            assert over or not (x < one or y < other)
            assert over == (x < join.bounds[0] and y < join.bounds[1])  # clipped, and still all that can be said
        (join.arrive if what == "row" else join.punctuate)(source, value)
        assert not any(x.time < box[0] and y.time < box[1] for x, y in join.output[before:])


def test_a_pair_of_times_is_over_before_either_time_is():
    join = OrderAgnosticJoin((3, 3))  # a band of two minutes, closed
    for source, bound in ((0, 1), (1, 1), (0, 2)):
        join.punctuate(source, bound)
    assert join.box == (2, 1)
    assert join.progress <= 0  # of the group (1, 0) nothing is known by its first time alone


def test_a_buffer_of_results_is_larger_than_one_of_rows_and_both_than_none():
    """The shapes of Figs 7-6 and 7-7."""
    for length in (20, 40):
        peaks = []
        for kind in (OutputBufferedJoin, InputBufferedJoin, OrderAgnosticJoin):
            join = kind((length, length))
            for now in range(200):
                for source in (0, 1):
                    join.arrive(source, Timed(now, now % 4, now))
                    join.punctuate(source, now + 1)
            peaks.append(join.counts.peak_state)
        assert peaks[0] > 2 * peaks[1]
        assert peaks[1] >= peaks[2]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)),
     max_size=60).map(lambda rows: sorted(rows, key=lambda r: r[0])),
    st.integers(1, 8), st.sampled_from(("iop", "lazy", "slow")), st.integers(1, 3), st.integers(1, 4),
)  # fmt: skip
def test_totals_are_the_same_in_all_policies_and_order_or_delay_is_kept(rows, size, policy, most, every):
    levels = TwoLevels(size, policy, most, every)
    for window, key in rows:
        levels.arrive(window, key)
    held = [slot.window for slot in levels.slots if slot]
    assert policy == "iop" or all(levels.window - w <= most for w in held)
    levels.finish()
    assert levels.totals == Counter(rows)
    assert levels.counts.state == 0
    if policy == "iop":
        assert [left for _, left in levels.emitted] == sorted(left for _, left in levels.emitted)


def test_without_order_there_is_no_burst():
    largest = {}
    for policy in ("iop", "lazy", "slow"):
        draw, levels = random.Random(5), TwoLevels(130, policy, 2, 4)
        for number in range(20_000):
            levels.arrive(number // 2000, draw.randrange(260))
        largest[policy] = levels.largest
    assert largest["iop"] > 20
    assert largest["lazy"] <= 1
    assert largest["slow"] <= 2


def test_a_ring_loses_rows_when_they_come_faster_than_they_are_served_or_a_burst_does_not_fit():
    few = Load(groups=1, length=5.0, windows=2)
    assert sustained_rate(8, "lazy", few, Ring(places=24, row=1e-2, slot=0.0), step=5) == pytest.approx(100, abs=15)
    ring = Ring(places=10, row=1e-3, slot=1e-2)
    assert keeps_up(TwoLevels(64, "lazy"), ring, few, 500)
    assert not keeps_up(TwoLevels(64, "iop"), ring, Load(groups=64, length=5.0, windows=3), 500)


def test_without_order_the_rate_does_not_fall_with_the_number_of_groups():
    """The shape of Fig. 8-7: equal with few groups; with many and room, twice the rate of an ordered flush."""
    rates = {
        (groups, slots, policy): sustained_rate(round(groups * slots), policy, Load(groups), step=50)
        for groups, slots in ((66, 2), (520, 1), (520, 2))
        for policy in ("iop", "lazy", "slow")
    }
    assert rates[66, 2, "iop"] >= 0.9 * rates[66, 2, "lazy"]
    for slots in (1, 2):
        assert min(rates[520, slots, "lazy"], rates[520, slots, "slow"]) >= 1.9 * rates[520, slots, "iop"]
    assert rates[520, 2, "iop"] <= rates[520, 1, "iop"]
    assert rates[520, 2, "lazy"] >= rates[520, 1, "lazy"]
