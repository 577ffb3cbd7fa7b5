import random
from collections import Counter, deque
from itertools import combinations, pairwise
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.chain import Chain, slice_ends
from lab.slices import Copy, SlicedJoin
from lab.workload import A, Arrival, B, Below, JoinQuery, LabError, Match, both, hashed, longest
from tests.effort import examples

SELECTIONS = st.sampled_from([None, Below(0.3), Below(0.6)])
LENGTHS = st.integers(1, 12)
THETAS = st.sampled_from([lambda a, b: True, hashed(0.5)])
SEEDS = st.integers(0, 2**32)


def in_order(drawn):
    """Arrivals from (stream, time since the one before, value)."""
    time, found = 0, []
    for number, (stream, gap, value) in enumerate(drawn):
        time += gap
        found.append(Arrival(stream, time, number, value))
    return found


def each_in_order(drawn):
    """Arrivals from (stream, time since the last one of that stream, value): only each stream is in order."""
    times, found = [0, 0], []
    for number, (stream, gap, value) in enumerate(drawn):
        times[stream] += gap
        found.append(Arrival(stream, times[stream], number, value))
    return found


def drawn_arrivals(least_gap=0):
    one = st.tuples(st.sampled_from((A, B)), st.integers(least_gap, 4), st.sampled_from([0.1, 0.5, 0.9, None]))
    # Left to itself, Hypothesis draws short lists, and in a short one hardly a tuple grows old.
    return st.sampled_from([40, 30, 20, 10, 3, 0]).flatmap(lambda count: st.lists(one, min_size=count, max_size=count))


def named(drawn):
    return [JoinQuery(f"q{i}", windows, selections) for i, (windows, selections) in enumerate(drawn)]


def query_sets(selections):
    windows = LENGTHS.map(both) | st.tuples(LENGTHS, LENGTHS)
    return st.lists(st.tuples(windows, selections), min_size=1, max_size=4).map(named)


ARRIVALS = drawn_arrivals().map(in_order)
QUERIES = query_sets(st.tuples(SELECTIONS, SELECTIONS))
WITHOUT_SELECTIONS = query_sets(st.just((None, None)))
SELECTING_A = query_sets(st.tuples(SELECTIONS, st.none()))


@st.composite
def chains(draw, queries=QUERIES, **options):
    """A chain for some queries, cut at all their windows or at any ages."""
    served = draw(queries)
    ends = None
    if draw(st.booleans()):
        last = longest(served)
        inner = {tuple(min(age, length) for length in last) for age in draw(st.sets(LENGTHS))}
        ends = (*sorted(inner - {last}), last)
    return Chain(served, draw(THETAS), ends=ends, **options)


def play(chain, arrivals, seed, *, moments=lambda: None, actions=()):
    """Run a chain in a random schedule, looking at it after every message; `actions` also happen now and then."""
    chance = random.Random(seed)
    waiting = deque(arrivals)
    while waiting or chain.ready():
        ready = chain.ready()
        if actions and chance.random() < 0.1:
            chance.choice(actions)(chance)
        elif waiting and (not ready or chance.random() < 0.3):
            chain.arrive(waiting.popleft())
        elif ready:
            chain.run(chance.choice(ready))
        moments()
    chain.finish()


def split_anywhere(chain):
    def split(chance):
        index = chance.randrange(len(chain.slices))
        piece = chain.slices[index]
        at = tuple(chance.randint(start, end) for start, end in zip(piece.start, piece.end, strict=True))
        if at not in (piece.start, piece.end):
            chain.split(index, at)

    return split


def merge_anywhere(chain):
    def merge(chance):
        if len(chain.slices) > 1:
            index = chance.randrange(len(chain.slices) - 1)
            chain.merge(index, index + 1)

    return merge


def passes(selection, value):
    return selection is None or selection(value) is True


def nested_loops(query, theta, arrivals):
    """The answer of one query by its definition, as a sorted list of the numbers of the tuples."""
    return sorted(
        (a.number, b.number)
        for a in arrivals
        for b in arrivals
        if a.stream == A and b.stream == B
        if 0 <= b.time - a.time < query.windows[A] or 0 <= a.time - b.time < query.windows[B]
        if theta(a, b) and passes(query.selections[A], a.value) and passes(query.selections[B], b.value)
    )


def numbers(matches):
    return sorted((match.a.number, match.b.number) for match in matches)


def assert_exact(chain, arrivals):
    for query in chain.queries:
        assert numbers(chain.answers[query.name]) == nested_loops(query, chain.theta, arrivals)


def probed(found):
    """A stand-in for `SlicedJoin.probe` that also gives the slice, the probe and its matches to `found`."""
    plain = SlicedJoin.probe

    def probe(self, arrival, theta):
        matches = plain(self, arrival, theta)
        found(self, arrival, matches)
        return matches

    return mock.patch.object(SlicedJoin, "probe", probe)


def builds(chain):
    """The numbers of all tuples that some state holds or some queue carries to one."""
    held = [x.number for piece in chain.slices for state in piece.states for x in state]
    moving = [m.arrival.number for piece in chain.slices for m in piece.queue if m.copy is Copy.BUILD]
    return held + moving


def wanted(chain, x, side):
    """The longest window on one side among the queries that select a tuple, 0 if there is none."""
    return max((q.windows[side] for q in chain.queries if passes(q.selections[x.stream], x.value)), default=0)


@given(chains(), ARRIVALS, SEEDS)
def test_every_query_gets_its_window_join_under_any_schedule(chain, arrivals, seed):
    play(chain, arrivals, seed)
    assert_exact(chain, arrivals)


@given(chains(), ARRIVALS, SEEDS)
def test_which_copy_of_a_tuple_enters_first_does_not_matter(chain, arrivals, seed):
    def swap(chance):
        queue = chain.slices[0].queue
        if len(queue) > 1 and queue[-1].arrival is queue[-2].arrival:
            queue[-1], queue[-2] = queue[-2], queue[-1]

    play(chain, arrivals, seed, actions=[swap])
    assert_exact(chain, arrivals)


@given(chains(WITHOUT_SELECTIONS, one_way=True), ARRIVALS, SEEDS)
def test_a_one_way_chain_joins_each_probe_with_the_builds_before_it(chain, arrivals, seed):
    play(chain, arrivals, seed)
    for query in chain.queries:
        assert numbers(chain.answers[query.name]) == sorted(
            (a.number, b.number)
            for a, b in combinations(arrivals, 2)
            if (a.stream, b.stream) == (A, B) and b.time - a.time < query.windows[A] and chain.theta(a, b)
        )


@given(chains(WITHOUT_SELECTIONS), ARRIVALS, SEEDS)
def test_each_pair_comes_once_and_from_the_slice_of_its_age(chain, arrivals, seed):
    pairs = Counter()

    def check(piece, probe, matches):
        for match in matches:
            pairs[match.a.number, match.b.number] += 1
            partner = match[1 - probe.stream]
            assert piece.start[partner.stream] <= probe.time - partner.time < piece.end[partner.stream]

    with probed(check):
        play(chain, arrivals, seed)
    whole = JoinQuery("whole", longest(chain.queries))
    assert sorted(pairs.elements()) == nested_loops(whole, chain.theta, arrivals)


def content_is(chain, arrivals, looked_at):
    """Checks between expiry and probe: the state has the wanted tuples with ages from the slice's start to its end."""

    def check(piece, probe, _):
        looked_at.add(probe.number)
        side = 1 - probe.stream
        assert [x.number for x in piece.states[side]] == [
            x.number
            for x in arrivals[: probe.number]
            if x.stream == side and wanted(chain, x, side) > piece.start[side]
            if piece.start[side] <= probe.time - x.time < piece.end[side]
        ]

    return probed(check)


@given(chains(), ARRIVALS, SEEDS)
def test_between_purge_and_probe_a_slice_holds_exactly_the_ages_from_its_start_to_its_end(chain, arrivals, seed):
    looked_at = set()
    with content_is(chain, arrivals, looked_at):
        play(chain, arrivals, seed)
    assert looked_at == {x.number for x in arrivals if wanted(chain, x, 1 - x.stream)}


@given(chains(WITHOUT_SELECTIONS), ARRIVALS, SEEDS)
def test_slices_hold_exactly_their_ages_also_while_they_are_split_and_merged(chain, arrivals, seed):
    looked_at = set()
    with content_is(chain, arrivals, looked_at):
        play(chain, arrivals, seed, actions=[split_anywhere(chain), merge_anywhere(chain)])
    assert looked_at == {x.number for x in arrivals}


@given(chains(), ARRIVALS, SEEDS)
def test_states_and_queues_share_no_tuple_at_any_moment(chain, arrivals, seed):
    def check():
        assert max(Counter(builds(chain)).values(), default=1) == 1
        assert chain.counts.state == sum(len(state) for piece in chain.slices for state in piece.states)

    play(chain, arrivals, seed, moments=check, actions=[split_anywhere(chain), merge_anywhere(chain)])


@given(QUERIES, ARRIVALS, SEEDS)
def test_a_chain_cut_at_all_windows_holds_only_what_a_query_can_still_use(queries, arrivals, seed):
    chain = Chain(queries, lambda a, b: True)
    chance = random.Random(seed)
    for count, arrival in enumerate(arrivals, start=1):
        chain.arrive(arrival)
        chain.drain(chance.choice)
        needed = []
        for x in arrivals[:count]:
            probes = [p.time for p in arrivals[x.number : count] if p.stream != x.stream]
            if max(probes, default=x.time) - x.time < wanted(chain, x, x.stream):
                needed.append(x.number)
        assert sorted(builds(chain)) == needed


@given(chains(WITHOUT_SELECTIONS), ARRIVALS)
def test_without_selections_every_chain_holds_what_the_longest_join_alone_would_hold(chain, arrivals):
    single = Chain([JoinQuery("longest", longest(chain.queries))], chain.theta)
    for arrival in arrivals:
        for each in (chain, single):
            each.arrive(arrival)
            each.drain()
        assert sorted(builds(chain)) == sorted(builds(single))


@given(SELECTING_A, ARRIVALS, SEEDS)
def test_a_chain_cut_at_all_windows_compares_exactly_the_pairs_that_share_a_query(queries, arrivals, seed):
    chain = Chain(queries, lambda a, b: True)
    play(chain, arrivals, seed)
    shared = {pair for query in queries for pair in nested_loops(query, chain.theta, arrivals)}
    assert chain.counts.probes == len(shared)


@given(chains(), ARRIVALS, SEEDS)
def test_answers_come_in_order_and_a_union_keeps_nothing_behind_a_punctuation(chain, arrivals, seed):
    def check():
        for union, answer in zip(chain.unions, chain.answers.values(), strict=True):
            assert all(earlier.time <= later.time for earlier, later in pairwise(answer))
            passed = {m.arrival.number for piece in union.feeders for m in piece.queue if m.copy is not Copy.BUILD}
            in_flight = passed | {x.number for x in union.punctuations}
            # All results of a probe carry the number of the later of their two tuples.
            assert {max(m.a.number, m.b.number) for m in union.held} <= in_flight

    play(chain, arrivals, seed, moments=check, actions=[split_anywhere(chain), merge_anywhere(chain)])
    check()
    assert [union.buffers for union in chain.unions] == [{}] * len(chain.unions)


@given(chains(), ARRIVALS)
def test_a_union_works_once_for_each_probe_and_not_at_all_behind_a_single_slice(chain, arrivals):
    for arrival in arrivals:
        chain.arrive(arrival)
    chain.drain()
    fed_by_several = sum(
        any(window > start for window, start in zip(query.windows, chain.slices[1].start, strict=True))
        for query in chain.queries
        if len(chain.slices) > 1
    )
    assert chain.counts.union_steps == len(arrivals) * fed_by_several


@settings(max_examples=examples(200))
@given(chains(), ARRIVALS, SEEDS)
def test_splits_and_merges_at_any_moment_lose_and_duplicate_nothing(chain, arrivals, seed):
    play(chain, arrivals, seed, actions=[split_anywhere(chain), merge_anywhere(chain)])
    assert_exact(chain, arrivals)


@given(chains(), ARRIVALS, SEEDS)
def test_a_split_moves_nothing_and_a_merge_empties_the_queue_between_the_two(chain, arrivals, seed):
    def split(chance):
        before = [(list(p.queue), *map(list, p.states)) for p in chain.slices]
        count = len(chain.slices)
        split_anywhere(chain)(chance)
        after = [(list(p.queue), *map(list, p.states)) for p in chain.slices]
        assert [held for held in after if any(held)] == [held for held in before if any(held)]
        assert len(chain.slices) in (count, count + 1)

    def merge(chance):
        ends = [piece.end for piece in chain.slices]
        heads = [list(piece.queue) for piece in chain.slices]
        if len(ends) < 2:
            return
        index = chance.randrange(len(ends) - 1)
        chain.merge(index, index + 1)
        assert [piece.end for piece in chain.slices] == ends[:index] + ends[index + 1 :]
        assert list(chain.slices[index].queue) == heads[index]
        for state in chain.slices[index].states:
            assert [x.number for x in state] == sorted(x.number for x in state)

    play(chain, arrivals, seed, actions=[split, merge])


TWO_SLICES = [JoinQuery("short", both(2)), JoinQuery("long", both(4))]
UNEQUAL = [JoinQuery("q", (2, 6))]


@pytest.mark.parametrize(
    ("queries", "change", "message"),
    [
        (TWO_SLICES, lambda c: c.split(0, (2, 2)), r"slice 0 is \[0, 2\) and cannot be split at \(2, 2\)"),
        (TWO_SLICES, lambda c: c.split(0, (0, 0)), "choose ages inside it"),
        (TWO_SLICES, lambda c: c.split(1, (1, 1)), "choose ages inside it"),
        (TWO_SLICES, lambda c: c.split(1, (3, 5)), "choose ages inside it"),
        (TWO_SLICES, lambda c: c.split(2, (5, 5)), "no slice 2; the chain has slices 0 to 1"),
        (TWO_SLICES, lambda c: c.split(-1, (3, 3)), "no slice -1"),
        (UNEQUAL, lambda c: c.split(0, (3, 3)), r"A\[0, 2\) B\[0, 6\)"),
        (TWO_SLICES, lambda c: c.merge(0, 0), "slices 0 and 0 are not neighbours"),
        (TWO_SLICES, lambda c: c.merge(1, 0), "merge a slice with the one after it"),
        (TWO_SLICES, lambda c: c.merge(1, 2), "no slice 2"),
        (TWO_SLICES, lambda c: c.merge(-1, 0), "no slice -1"),
    ],
)
def test_an_impossible_split_or_merge_is_refused_and_changes_nothing(queries, change, message):
    chain = Chain(queries, lambda a, b: True)
    arrivals = in_order([(A, 1, None), (A, 1, None), (B, 1, None), (A, 1, None), (B, 1, None)])
    for arrival in arrivals:
        chain.arrive(arrival)
    for _ in range(4):
        chain.run(chain.slices[0])
    before = chain.explain(), [list(piece.queue) for piece in chain.slices], chain.counts.messages
    with pytest.raises(LabError, match=message):
        change(chain)
    assert (chain.explain(), [list(piece.queue) for piece in chain.slices], chain.counts.messages) == before
    chain.finish()
    assert_exact(chain, arrivals)


def test_merging_the_first_and_the_third_slice_is_refused():
    chain = Chain([JoinQuery("q", both(9))], hashed(0.5), ends=[both(3), both(6), both(9)])
    with pytest.raises(LabError, match="slices 0 and 2 are not neighbours"):
        chain.merge(0, 2)
    assert repr(chain) == "[0, 3) -> [3, 6) -> [6, 9)"


SEMI_ORDERED = drawn_arrivals().map(each_in_order)


@given(chains(ordered=False), SEMI_ORDERED, SEEDS)
def test_streams_that_are_in_order_each_for_itself_are_joined_exactly_and_let_out_in_order(chain, arrivals, seed):
    def check():
        for answer in chain.answers.values():
            assert all(earlier.time <= later.time for earlier, later in pairwise(answer))

    play(chain, arrivals, seed, moments=check, actions=[split_anywhere(chain), merge_anywhere(chain)])
    check()
    assert_exact(chain, arrivals)
    assert [union.held for union in chain.unions] == [[]] * len(chain.unions)


@given(chains(ordered=False), drawn_arrivals(least_gap=1).map(each_in_order), SEEDS)
def test_of_two_results_of_one_slice_the_earlier_has_an_older_component(chain, arrivals, seed):
    results = {}

    def check(piece, _, matches):
        results.setdefault(piece, []).extend(matches)

    with probed(check):
        play(chain, arrivals, seed)
    for found in results.values():
        for first, second in combinations(found, 2):
            assert first.a.time < second.a.time or first.b.time < second.b.time


def test_a_sorting_union_lets_a_result_out_once_no_older_one_can_follow():
    chain = Chain([JoinQuery("q", both(3))], lambda a, b: True, ordered=False)
    sent = []
    for arrival in each_in_order([(A, 2, None), (B, 1, None), (A, 4, None), (B, 3, None), (B, 1, None), (A, 2, None)]):
        chain.arrive(arrival)
        chain.drain()
        sent.append([match.time for match in chain.answers["q"]])
    # b1 finds (a2, b1), b4 finds (a2, b4) and (a6, b4): what follows the last of them is not older than 4.
    assert sent == [[], [], [], [2, 4], [2, 4], [2, 4]]
    chain.finish()
    assert [match.time for match in chain.answers["q"]] == [2, 4, 6, 6]


TRACE = """
t   arrives runs  J1 state  queue           J2 state  output
1   a1      J1    a1        -               -         -
2   a2      J1    a1 a2     -               -         -
3   a3      J1    a1 a2 a3  -               -         -
4   b1      J1    a3        a1 a2 b1        -         (a3,b1)
5   b2      J1    -         a1 a2 b1 a3 b2  -         -
6   -       J2    -         a2 b1 a3 b2     a1        -
7   -       J2    -         b1 a3 b2        a1 a2     -
8   a4      J1    a4        b1 a3 b2        a1 a2     -
9   -       J2    a4        a3 b2           a1 a2     (a1,b1) (a2,b1)
10  -       J2    a4        b2              a1 a2 a3  -
11  -       J2    a4        -               a2 a3     (a2,b2) (a3,b2)
"""


def test_the_trace_of_a_one_way_chain_with_two_slices():
    """Wang 2008, Table 5.1, with half-open slices and a state that only a probe purges."""
    names, found = {}, []
    chain = Chain(TWO_SLICES, lambda a, b: True, one_way=True)
    arriving = {1: "a1", 2: "a2", 3: "a3", 4: "b1", 5: "b2", 8: "a4"}

    def text(items):
        return " ".join(items) or "-"

    lines = [TRACE.strip().splitlines()[0]]
    with probed(lambda _piece, _probe, matches: found.extend(matches)):
        for t in range(1, 12):
            if t in arriving:
                names[t] = arriving[t]
                chain.arrive(Arrival(A if arriving[t][0] == "a" else B, t, t))
            found.clear()
            piece = 0 if t in arriving else 1
            chain.run(chain.slices[piece])
            first, second = chain.slices
            cells = (
                str(t),
                arriving.get(t, "-"),
                f"J{piece + 1}",
                text(names[x.number] for x in first.states[A]),
                text(names[m.arrival.number] for m in second.queue),
                text(names[x.number] for x in second.states[A]),
                text(f"({names[m.a.number]},{names[m.b.number]})" for m in found),
            )
            lines.append("{:4}{:8}{:6}{:10}{:16}{:10}{}".format(*cells))
    assert "\n".join(lines) == TRACE.strip()
    assert chain.counts.messages == 11
    chain.finish()
    assert {name: [(m.a.time, m.b.time) for m in answer] for name, answer in chain.answers.items()} == {
        "short": [(3, 4)],
        "long": [(3, 4), (1, 4), (2, 4), (2, 5), (3, 5)],
    }


def test_a_selection_between_slices_is_tested_once_a_tuple_and_again_only_on_results_from_before_it():
    wide = JoinQuery("wide", both(20), (Below(0.3), None))
    chain = Chain([JoinQuery("narrow", both(10)), wide], lambda a, b: True)
    arrivals = in_order([(number % 2, 1, number % 7 / 10) for number in range(60)])
    for arrival in arrivals:
        chain.arrive(arrival)
    chain.finish()
    assert_exact(chain, arrivals)
    assert chain.counts.filtered == 30 + len(chain.answers["narrow"])
    assert chain.counts.routed == 0


def test_a_merged_slice_routes_its_results_by_their_age():
    chain = Chain(TWO_SLICES, lambda a, b: True, ends=[both(4)])
    arrivals = in_order([(number % 2, 1, None) for number in range(20)])
    for arrival in arrivals:
        chain.arrive(arrival)
    chain.finish()
    assert_exact(chain, arrivals)
    assert chain.counts.routed == len(chain.answers["long"]) > len(chain.answers["short"])


def test_equal_windows_share_a_slice_and_a_stream_with_fewer_windows_ends_early():
    queries = [JoinQuery("a", (2, 9)), JoinQuery("b", (5, 9)), JoinQuery("c", (2, 3)), JoinQuery("d", (7, 3))]
    assert slice_ends(queries) == ((2, 3), (5, 9), (7, 9))
    assert slice_ends([JoinQuery("x", both(4)), JoinQuery("y", both(4))]) == ((4, 4),)


def test_a_chain_explains_what_its_slices_hold_and_whom_they_serve():
    chain = Chain(TWO_SLICES, lambda a, b: True)
    chain.arrive(Arrival(A, 0, 0))
    chain.arrive(Arrival(B, 1, 1))
    chain.run(chain.slices[0])
    chain.run(chain.slices[0])
    assert chain.explain().splitlines() == [
        "slice [0, 2): 1 of A, 0 of B, 2 in the queue, serves short, long",
        "slice [2, 4): 0 of A, 0 of B, 1 in the queue, serves long",
    ]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Chain([], hashed(1)), "no query to answer"),
        (lambda: Chain([*TWO_SLICES, JoinQuery("short", both(1))], hashed(1)), "two queries are named 'short'"),
        (lambda: JoinQuery("q", (3, 0)), "'q' has a window of 0"),
        (lambda: Chain(TWO_SLICES, hashed(1), ends=[]), r"end at the longest windows \(4, 4\), not at \(0, 0\)"),
        (lambda: Chain(TWO_SLICES, hashed(1), ends=[both(3)]), r"not at \(3, 3\)"),
        (lambda: Chain(TWO_SLICES, hashed(1), ends=[both(2), both(5)]), r"not at \(5, 5\)"),
        (lambda: Chain(TWO_SLICES, hashed(1), ends=[both(3), both(3), both(4)]), "in growing order"),
        (lambda: Chain(TWO_SLICES, hashed(1), ends=[(3, 1), (2, 4), (4, 4)]), r"from \(3, 1\) to \(2, 4\)"),
        (lambda: Chain(TWO_SLICES, hashed(1), ends=[both(0), both(4)]), r"from \(0, 0\) to \(0, 0\)"),
    ],
)
def test_a_chain_that_cannot_work_is_refused(build, message):
    with pytest.raises(LabError, match=message):
        build()


@pytest.mark.parametrize("ordered", [True, False])
def test_a_tuple_older_than_the_one_before_it_is_refused(ordered):
    chain = Chain(TWO_SLICES, lambda a, b: True, ordered=ordered)
    chain.arrive(Arrival(A, 5, 0))
    chain.arrive(Arrival(B, 5, 1))
    chain.drain()
    before = chain.explain()
    with pytest.raises(LabError, match="time 4 comes after one of time 5; sort the arrivals"):
        chain.arrive(Arrival(A, 4, 2))
    assert chain.explain() == before
    assert not chain.ready()


def test_streams_that_are_not_in_one_order_need_a_chain_that_expects_it():
    arrivals = [Arrival(A, 5, 0), Arrival(B, 4, 1)]
    strict, loose = (Chain(TWO_SLICES, lambda a, b: True, ordered=ordered) for ordered in (True, False))
    for arrival in arrivals:
        loose.arrive(arrival)
    loose.finish()
    assert loose.answers["short"] == [Match(*arrivals)]
    strict.arrive(arrivals[0])
    with pytest.raises(LabError, match="time 4 comes after one of time 5"):
        strict.arrive(arrivals[1])
