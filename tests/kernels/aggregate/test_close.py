from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Aggregate, Aggregation, Landmark, PerRow, Ref, SlidingRows
from penstock.model.expression import AGGREGATE_ROLE
from tests.effort import examples
from tests.kernels.aggregate.scenes import (
    BOUNDED,
    LANDMARKS,
    LENGTHS,
    LISTS,
    OTHERS,
    SESSIONS,
    SLIDING,
    assert_same,
    at_least,
    batches,
    column,
    condition,
    expected,
    hypotheses,
    items,
    run,
)  # fmt: skip

GROUPS = st.sampled_from(((), ("k",), ("k", "p"), ("p", "s")))
STEPS = st.sets(st.integers(0, 4))
PREDICATES = st.sampled_from(
    (
        ((),),
        ((), (condition(Ref(0, "x"), ">", 0),)),
        ((condition(Ref(0, "i"), "<=", 1),), (condition(Ref(0, "x"), ">", 0),)),
    )
)


def chosen(functions):
    return st.lists(st.sampled_from(functions), min_size=1, max_size=4, unique=True).map(tuple)


def check(
    windows, groups, aggregates, parts, predicates=((),), settled=(), merged=(), wanted=None, runs=False, having=None
):
    queries = {n: Aggregation(w, items(*groups), aggregates, having if n == 0 else None) for n, w in enumerate(windows)}
    found, left = run(queries, parts, predicates=predicates, settled=settled, merged=merged, wanted=wanted, runs=runs)
    for number, aggregation in queries.items():
        answer = expected(aggregation, parts, predicates[number % len(predicates)])
        assert_same(found[number], answer)
    return left


@settings(max_examples=examples(150), deadline=None)
@given(
    hypotheses(SLIDING, SESSIONS, LANDMARKS),
    GROUPS,
    chosen(BOUNDED),
    batches(),
    PREDICATES,
    STEPS,
    STEPS,
    st.booleans(),
)
def test_time_windows_are_those_of_the_reference(windows, groups, aggregates, parts, predicates, settled, merged, runs):
    left = check(windows, groups, aggregates, parts, predicates, settled, merged, runs=runs)
    landmarks = any(isinstance(w, Landmark) for w in windows)
    assert all(kept is None or landmarks for _, kept in left)


@settings(max_examples=examples(150), deadline=None)
@given(hypotheses(SLIDING, SESSIONS, LANDMARKS), GROUPS, chosen(OTHERS), batches(), PREDICATES, STEPS, STEPS)
def test_unbounded_and_approximate_functions_are_those_of_the_reference(
    windows, groups, aggregates, parts, predicates, settled, merged
):
    check(windows, groups, aggregates, parts, predicates, settled, merged)


@settings(max_examples=examples(150), deadline=None)
@given(
    hypotheses(SLIDING, SESSIONS, LANDMARKS),
    GROUPS,
    chosen(BOUNDED + OTHERS + LISTS),
    batches(),
    PREDICATES,
    STEPS,
    STEPS,
)
def test_buffered_rows_give_the_same_results(windows, groups, aggregates, parts, predicates, settled, merged):
    check(windows, groups, aggregates, parts, predicates, settled, merged, wanted="buffered")


EXACT = [
    a for a in BOUNDED if a.function == "count" or (a.function in ("sum", "avg") and a.argument.refs[0].column in "xim")
]


@settings(max_examples=examples(60), deadline=None)
@given(hypotheses(SLIDING, SESSIONS, LANDMARKS), GROUPS, chosen(EXACT), batches(), PREDICATES, STEPS)
def test_all_plans_give_the_same_results(windows, groups, aggregates, parts, predicates, settled):
    for plan in ("paned", "wid", "differential", "buffered", "adapt"):
        check(windows, groups, aggregates, parts, predicates, settled, wanted=plan)


@settings(max_examples=examples(60), deadline=None)
@given(hypotheses(SLIDING), GROUPS, chosen(BOUNDED + OTHERS), batches(), PREDICATES, STEPS)
def test_plans_without_differences_give_the_same_results(windows, groups, aggregates, parts, predicates, settled):
    for plan in ("paned", "wid", "adapt"):
        check(windows, groups, aggregates, parts, predicates, settled, wanted=plan)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.one_of(st.builds(SlidingRows, LENGTHS, LENGTHS), st.builds(PerRow, LENGTHS, st.integers(1, 3))),
        min_size=1,
        max_size=2,
    ),
    st.booleans(),
    GROUPS,
    chosen(BOUNDED + OTHERS + LISTS),
    batches(),
    PREDICATES,
    STEPS,
    STEPS,
)
def test_windows_of_rows_are_those_of_the_reference(
    windows, parted, groups, aggregates, parts, predicates, settled, merged
):
    if parted and groups:
        windows = [type(w)(w.range, w.slide if isinstance(w, SlidingRows) else w.rows, groups[-1:]) for w in windows]
    check(windows, groups, aggregates, parts, predicates, settled, merged)


@settings(max_examples=examples(60), deadline=None)
@given(hypotheses(SLIDING, SESSIONS), batches(), st.sampled_from(("-0.5", "250.25", "9999999999.98")), st.booleans())
def test_having_compares_decimals_before_rows_are_made(windows, parts, least, runs):
    totals = tuple(Aggregate(f, column("m")) for f in ("sum", "avg"))
    for number in range(2):
        passes = condition(Ref(AGGREGATE_ROLE, f"a{number}"), ">=", least, "decimal(12,2)")
        check(windows, ("k",), totals, parts, having=passes, runs=runs)


@settings(max_examples=examples(100), deadline=None)
@given(hypotheses(SLIDING, SESSIONS), GROUPS, chosen(BOUNDED[1:]), batches(), st.integers(0, 4), st.booleans())
def test_having_is_decided_before_rows_are_made(windows, groups, aggregates, parts, least, runs):
    check(windows, groups, (BOUNDED[0], *aggregates), parts, having=at_least(0, least), runs=runs)
