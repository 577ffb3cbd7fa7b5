"""Queries that come and go while the engine runs: each gets what it would get alone, and no other is affected."""

from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from penstock import Engine
from penstock.errors import PenstockError, RegistrationError, StateError
from penstock.model.time import SECOND
from penstock.planner.build import STRATEGIES
from penstock.reference import admit, results
from penstock.results.released import released
from penstock.sql import parse_query
from tests.effort import examples
from tests.oracle import bag
from tests.spark.replay import Replay, drain, names, rows_of, stream, wait_until
from tests.spark.test_engine_properties import together
from tests.workloads import workload

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*RANGE ALL")]

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
STREAMS = (
    stream("a", "ts timestamp, k bigint, v bigint", delay=2 * SECOND),
    stream("b", "ts timestamp, k bigint, v bigint", delay=2 * SECOND),
)
JOIN = "SELECT a.v, b.v AS w FROM a [RANGE {} SECONDS] AS a, b [RANGE {} SECONDS] AS b WHERE a.k = b.k"
WIDE, NARROW = JOIN.format(9, 9), JOIN.format(3, 2) + " AND a.v > 2"


def rows_at(number):
    """Two rows of each stream in step `number`; all have one key, and times a second apart."""
    return {
        name: [{"ts": (2 * number + n) * SECOND, "k": 1, "v": 2 * number + n} for n in range(2)] for name in ("a", "b")
    }


def reference(sql, steps):
    streams = {s.name: s for s in STREAMS}
    rows = {name: [row for number in steps for row in rows_at(number)[name]] for name in streams}
    return bag(results(parse_query(sql, streams), streams, rows))


class Live:
    """A running engine that is fed step by step."""

    def __init__(self, replay, engine):
        self.replay, self.engine = replay, engine
        self.run = engine.start("0 seconds")

    def feed(self, **rows):
        """Give all streams their rows, and wait until they are taken; Spark may take those of one stream first."""
        wanted = {name: self.rows(name) + len(given) for name, given in rows.items()}
        self.replay.add(**rows)
        wait_until(lambda: all(self.rows(n) == w for n, w in wanted.items()) or self.run.error)
        assert self.run.error is None

    def rows(self, name):
        return self.run.stepper.manifest.counters.stream(name).rows

    def answer(self, name):
        return bag(rows_of(self.engine.results(name)))


@contextmanager
def started(spark, folder, streams):
    """Starts engines over these streams, and ends in the end what still runs."""
    runs = []

    def start(queries=None, **options):
        replay = Replay(folder / "source", *streams)
        engine = replay.engine(spark, folder / "state", queries, **options)
        runs.append(Live(replay, engine))
        return runs[-1]

    yield start
    for one in runs:
        if one.run.active:
            one.run.stop()


@pytest.fixture
def live(spark, tmp_path):
    with started(spark, tmp_path, STREAMS) as start:
        yield start


# ---------------------------------------------------------------------------------------------------- any sequence


@st.composite
def changing(draw):
    """Several workloads at once, and for each query the steps [first, end) in which it is there."""
    load = together(draw(st.lists(workload(late=True), min_size=3, max_size=3)))
    steps = len(load.batches)
    spans = st.tuples(st.integers(0, steps), st.integers(0, steps)).map(sorted).map(tuple)
    return load, [draw(st.one_of(st.just((0, steps)), spans)) for _ in load.queries]


def check_changes(spark, root, case, strategy, tasks, restart, *, plain=True):
    load, lifetimes = case
    replay = Replay(root / "source", *load.streams.values())
    replay.plain = plain
    spans = dict(zip(names(load).items(), lifetimes, strict=True))
    one = None
    for number, batch in enumerate(load.batches):
        if one is None or number == restart:
            if one is not None:
                one.run.stop()
            engine = replay.engine(spark, root / "state", tasks=tasks, strategy=strategy)
            one = Live(replay, engine)
        for (name, sql), (first, end) in spans.items():
            if first == number < end:
                engine.query(sql, name=name)
            if first < end == number:
                engine.drop(name)
        one.feed(**batch)
    one.run.stop(final=True)
    judged = {name: admit(s, load.arrivals(name)) for name, s in load.streams.items()}
    for ((name, _), (first, end)), query in zip(spans.items(), load.parsed, strict=True):
        if first < end:
            rows = {n: [row for step in steps[first:end] for row in step.accepted] for n, steps in judged.items()}
            expected = bag(results(query, load.streams, rows))
            assert bag(rows_of(engine.results(name))) == expected, f"{name}: {query.sql}"
            event("some results" if expected else "no result")


@settings(max_examples=examples(1), deadline=None, phases=PHASES)
@given(changing(), st.integers(1, 3), st.integers(1, 3))
@pytest.mark.parametrize("strategy", ["state_slice", "pull_up"])
def test_every_sequence_of_changes_gives_every_query_its_own_answer(
    spark, tmp_path_factory, strategy, case, tasks, restart
):
    with patch("penstock.state.compaction.FAN_IN", 2):
        check_changes(spark, tmp_path_factory.mktemp("online"), case, strategy, tasks, restart)


@pytest.mark.long
@settings(max_examples=examples(25), deadline=None, phases=PHASES)
@given(changing(), st.integers(1, 3), st.integers(1, 3), st.sampled_from(STRATEGIES))
def test_many_sequences_of_changes(spark, tmp_path_factory, case, tasks, restart, strategy):
    with patch("penstock.state.compaction.FAN_IN", 2):
        check_changes(spark, tmp_path_factory.mktemp("online"), case, strategy, tasks, restart)


# ----------------------------------------------------------------------------------------------------- one by one


def test_a_query_is_answered_from_the_next_step_on_and_the_others_do_not_notice(live):
    one = live({"wide": WIDE})
    for number in (0, 1):
        one.feed(**rows_at(number))
    added = one.engine.query(NARROW, name="narrow")
    assert one.run.status()["queries"]["narrow"]["results"] == 0
    for number in (2, 3):
        one.feed(**rows_at(number))
    assert one.answer("narrow") == reference(NARROW, (2, 3))
    assert one.answer("wide") == reference(WIDE, range(4))
    coverage = added.coverage()
    assert coverage["complete_from"] == {"a": 3 * SECOND + 1, "b": 3 * SECOND + 1}
    assert coverage["exact_from"] == 6 * SECOND
    assert not coverage["covered"]
    one.feed(**rows_at(4))
    assert added.coverage()["covered"]
    one.engine.drop("narrow")
    one.feed(**rows_at(5))
    assert one.answer("narrow") == reference(NARROW, (2, 3, 4))
    assert one.answer("wide") == reference(WIDE, range(6))
    assert "narrow" not in one.run.status()["queries"]


def test_rows_that_only_a_dropped_query_needed_leave_the_state(live):
    one = live({"long": JOIN.format(1000, 1000), "short": JOIN.format(1, 1)})
    for number in range(3):
        one.feed(**rows_at(number))
    before = one.run.status()["state"]["rows"]
    one.engine.drop("long")
    for number in range(3, 6):
        one.feed(**rows_at(number))
    assert before == 12
    assert min(run.min_time for run in one.run.stepper.manifest.runs.values()) > 5 * SECOND
    assert one.answer("short") == reference(JOIN.format(1, 1), range(6))


def test_a_query_can_begin_from_the_rows_that_are_held(live):
    one = live({"wide": WIDE, "other": JOIN.format(2, 2)})
    for number in range(2):
        one.feed(**rows_at(number))
    held = JOIN.format(6, 5) + " AND b.v > 1"
    added = one.engine.query(held, name="held", start="state")
    assert one.answer("held") == reference(held, range(2))  # what is held is joined at once
    coverage = added.coverage()
    assert coverage["exact_from"] <= 0  # nothing that it needs has expired yet
    for number in range(2, 4):
        one.feed(**rows_at(number))
    assert one.answer("held") == reference(held, range(4))
    assert one.answer("wide") == reference(WIDE, range(4))
    assert one.answer("other") == reference(JOIN.format(2, 2), range(4))


def test_a_query_that_fails_on_the_rows_that_are_held_is_suspended_at_once(live):
    one = live({"wide": WIDE})
    one.feed(**rows_at(0))
    failing = WIDE.replace("a.v, b.v AS w", "6 / (a.v - b.v) AS q")
    one.engine.query(failing, name="stopped", start="state", on_error="stop")
    one.engine.query(failing, name="skipped", start="state")
    status = one.run.status()["queries"]
    assert "on_error" in status["stopped"]["suspended"]
    assert status["skipped"]["suspended"] is None
    assert status["skipped"]["errors"] > 0


def test_from_the_state_a_query_is_exact_from_the_time_it_says(live):
    one = live({"narrow": NARROW})  # keeps rows of a for 3 seconds and only those above 2, of b for 2 seconds
    for number in range(4):
        one.feed(**rows_at(number))
    everything = JOIN.format(4, 4)
    one.engine.execute(f"CREATE QUERY all FROM STATE AS {everything}")
    one.engine.execute(f"CREATE QUERY some FROM STATE AS {JOIN.format(2, 2)} AND a.v > 2 AND b.v > 4")
    for number in range(4, 7):
        one.feed(**rows_at(number))
    for name, sql in (("all", everything), ("some", f"{JOIN.format(2, 2)} AND a.v > 2 AND b.v > 4")):
        exact = one.engine.coverage(name)["exact_from"]
        found, whole = one.answer(name), reference(sql, range(7))
        assert found <= whole
        late = bag(row for row in whole.elements() if max(row) * SECOND >= exact)
        assert late
        assert late <= found
    # rows below 2 of a were never kept: exact only for results of rows that came later
    assert one.engine.coverage("all")["complete_from"]["a"] == 7 * SECOND + 1
    assert one.engine.coverage("some")["complete_from"]["a"] < 7 * SECOND


def test_a_query_can_be_altered_and_its_results_go_on(live):
    one = live({"q": JOIN.format(9, 9)})
    one.feed(**rows_at(0))
    one.engine.execute(f"ALTER QUERY q AS {JOIN.format(2, 2)}")
    one.feed(**rows_at(1))
    one.engine.execute(f"CREATE OR REPLACE QUERY q FROM STATE AS {JOIN.format(20, 20)}")
    expected = reference(JOIN.format(9, 9), (0,)) + reference(JOIN.format(2, 2), (1,))
    assert expected <= one.answer("q")
    one.engine.execute(f"CREATE OR REPLACE QUERY q AS {JOIN.format(20, 20)} AND a.v > b.v")
    one.feed(**rows_at(2))
    assert reference(JOIN.format(20, 20) + " AND a.v > b.v", (2,)) <= one.answer("q")
    with pytest.raises(RegistrationError, match="no query 'r'"):
        one.engine.execute(f"ALTER QUERY r AS {WIDE}")


def test_a_change_that_is_refused_changes_nothing(live):
    one = live({"wide": WIDE})
    one.feed(**rows_at(0))
    version = one.engine.network().version
    with pytest.raises(PenstockError):
        one.engine.query("SELECT a.nothing FROM a [RANGE 1 SECOND] AS a", name="bad")
    with pytest.raises(RegistrationError, match="another definition"):
        one.engine.query(NARROW, name="wide", into=lambda _table, _step: None)
    with patch.object(one.engine.catalog, "commit", side_effect=OSError("disk full")), pytest.raises(OSError):
        one.engine.query(NARROW, name="new", into=lambda _table, _step: None)
    assert not one.engine.catalog.given
    assert one.engine.network().version == version
    one.feed(**rows_at(1))
    assert one.answer("wide") == reference(WIDE, range(2))


def test_a_query_of_a_stream_that_is_only_registered_is_refused(spark, live, tmp_path):
    one = live({"alone": "SELECT a.v FROM a WHERE a.v > 0"})
    one.feed(**rows_at(0))
    one.run.stop()
    replay = Replay(tmp_path / "source", *STREAMS)
    again = Engine(spark, tmp_path / "state", durable=False)
    replay.declare(again, "a")
    run = again.start()
    try:
        with pytest.raises(RegistrationError, match="reads stream 'b', which is not declared"):
            again.query(WIDE, name="wide")
        assert [q["name"] for q in again.queries()] == ["alone"]
    finally:
        run.stop()


def test_a_change_outlives_a_crash(spark, live, tmp_path):
    one = live({"wide": WIDE})
    one.feed(**rows_at(0))
    one.engine.query(NARROW, name="narrow")
    one.feed(**rows_at(1))
    one.run.stop()
    replay = Replay(tmp_path / "source", *STREAMS)
    again = replay.engine(spark, tmp_path / "state")
    assert [q["name"] for q in again.queries()] == ["wide", "narrow"]
    replay.add(**rows_at(2))
    drain(again)
    assert bag(rows_of(again.results("narrow"))) == reference(NARROW, (1, 2))
    assert bag(rows_of(again.results("wide"))) == reference(WIDE, range(3))


def test_a_query_from_the_state_gets_it_also_if_the_engine_dies_before(spark, live, tmp_path):
    one = live({"wide": WIDE})
    for number in range(2):
        one.feed(**rows_at(number))
    with patch.object(type(one.run.stepper), "take_over", side_effect=OSError("power cut")):
        with pytest.raises(OSError, match="power cut"):
            one.engine.query(WIDE + " AND a.v > 0", name="held", start="state")
        with pytest.raises(OSError, match="power cut"):  # a further step would give it no stored rows any more
            one.run.await_termination(60)
    replay = Replay(tmp_path / "source", *STREAMS)
    again = replay.engine(spark, tmp_path / "state")
    replay.add(**rows_at(2))
    drain(again)
    assert bag(rows_of(again.results("held"))) == reference(WIDE + " AND a.v > 0", range(3))


def test_a_strategy_cannot_read_the_state_of_another(spark, live, tmp_path):
    one = live({"wide": WIDE}, strategy="pull_up")
    one.feed(**rows_at(0))
    assert "strategy pull_up (asked for); rows" in one.engine.explain()
    one.run.stop()
    replay = Replay(tmp_path / "source", *STREAMS)
    assert (
        "strategy pull_up (auto: kept, the state was written by it)"
        in replay.engine(spark, tmp_path / "state").explain()
    )
    assert "strategy state_slice (auto: it holds" in Engine(spark, tmp_path / "new", durable=False).explain()
    with pytest.raises(StateError, match="kept by strategy 'pull_up'"):
        replay.engine(spark, tmp_path / "state", strategy="state_slice").start()
    with pytest.raises(RegistrationError, match="no strategy 'best'"):
        replay.engine(spark, tmp_path / "state", strategy="best")


def test_a_stream_can_come_and_go_and_come_back_while_the_engine_runs(spark, tmp_path):
    third = stream("c", "ts timestamp, k bigint, v bigint", delay=2 * SECOND)
    replay = Replay(tmp_path / "source", *STREAMS, third)
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
    replay.declare(engine, "a", "b")
    engine.query(WIDE, name="wide")
    one = Live(replay, engine)
    rows = [{**rows_at(n), "c": rows_at(n)["a"]} for n in range(8)]
    one.feed(**{**rows[0], "c": []})
    replay.declare(engine, "c")
    sql = "SELECT c.v, a.v AS w FROM c [RANGE 9 SECONDS] AS c, a [RANGE 9 SECONDS] AS a WHERE a.k = c.k"
    engine.query(sql, name="three")
    for number in (1, 2):
        one.feed(**rows[number])
    streams = {s.name: s for s in (*STREAMS, third)}
    expected = bag(
        results(parse_query(sql, streams), streams, {n: [r for x in rows[1:3] for r in x[n]] for n in "abc"})
    )
    assert one.answer("three") == expected
    assert one.answer("wide") == reference(WIDE, range(3))
    with pytest.raises(RegistrationError, match="query 'three' reads stream 'c'"):
        engine.execute("DROP STREAM c")
    engine.drop("three")
    engine.execute("DROP STREAM c")
    assert one.answer("three") == expected
    one.feed(a=rows[3]["a"], b=rows[3]["b"])
    replay.declare(engine, "c")  # read from its beginning: the files are there again
    wait_until(lambda: one.rows("c") == 4 + 4)
    assert one.run.stepper.manifest.counters.stream("c").late == 0
    one.feed(**rows[4])
    assert one.answer("wide") == reference(WIDE, range(5))
    assert engine.catalog.registry.streams["c"].source_name == "c_g1"
    one.run.stop()


# -------------------------------------------------------------------------------------------------------- in order


def test_ordered_results_come_in_order_as_progress_releases_them(live, tmp_path):
    one = live({})
    got = []
    fed = []
    one.engine.query(f"{WIDE} ORDER BY result_time", name="q", into=lambda table, _: got.extend(table.to_pylist()))
    one.engine.query(WIDE, name="file", into=tmp_path / "file", ordered=True)
    for number in range(4):
        one.feed(**rows_at(number))
        fed.append(number)
        wait_until(lambda: all(s.delivered == one.run.stepper.manifest.step for s in one.run.delivery.sinks))
        until = released(one.engine.catalog, one.engine.catalog.record("q"), one.run.stepper.manifest)
        times = [max(r["v"], r["w"]) for r in got]
        assert times == sorted(times)
        assert times == sorted(max(r) for r in reference(WIDE, fed).elements() if max(r) * SECOND < until)
    assert 0 < len(got) < len(list(reference(WIDE, range(4)).elements()))
    found = [max(r) for r in rows_of(one.engine.results("q"))]
    assert found == sorted(found)
    one.run.stop(final=True)
    assert bag((r["v"], r["w"]) for r in got) == reference(WIDE, range(4))
    assert [max(r["v"], r["w"]) for r in got] == sorted(max(r) for r in reference(WIDE, range(4)).elements())
    assert one.answer("file") == reference(WIDE, range(4))


def test_what_waits_to_be_released_when_an_ordered_query_is_altered_still_comes(live):
    one, got = live({}), []
    one.engine.query(WIDE, name="q", into=lambda table, _: got.extend(table.to_pylist()), ordered=True)
    one.feed(**rows_at(0))
    one.feed(**rows_at(1))
    before = list(reference(WIDE, range(2)).elements())
    wait_until(lambda: all(s.delivered == one.run.stepper.manifest.step for s in one.run.delivery.sinks))
    assert len(got) < len(before)
    one.engine.execute(f"ALTER QUERY q AS {WIDE} AND a.v >= 0")
    assert one.engine.catalog.record("q").ordered
    for number in (2, 3):
        one.feed(**rows_at(number))
    one.run.stop(final=True)
    found = bag((r["v"], r["w"]) for r in got)
    assert found == one.answer("q")
    assert bag(before) <= found
    assert [max(r["v"], r["w"]) for r in got] == sorted(max(r["v"], r["w"]) for r in got)


def test_an_ordered_query_is_refused_for_a_sink_without_order(live):
    from penstock import Sink

    one = live({"wide": WIDE})
    with pytest.raises(RegistrationError, match="keeps no order"):
        one.engine.query(WIDE, name="q", into=Sink("noop"), ordered=True)


def test_a_query_with_several_keys_can_begin_from_the_rows_that_are_held(spark, tmp_path):
    columns = "ts bigint, x bigint, y bigint, v bigint"
    streams = {name: stream(name, columns, delay=2) for name in "abc"}
    replay = Replay(tmp_path / "source", *streams.values())
    chain = (
        "SELECT a.v, b.v AS w, c.v AS u FROM a [RANGE {0}], b [RANGE {0}], c [RANGE {0}] WHERE a.x = b.x AND b.y = c.y"
    )
    one = Live(replay, replay.engine(spark, tmp_path / "state", {"wide": chain.format(9)}))
    given_rows = {name: [] for name in streams}

    def feed(number):
        rows = {
            name: [
                {"ts": 2 * number + n, "x": (number + n) % 2, "y": None if name == "b" and n == 2 else (n + place) % 3,
                 "v": 10 * number + n}
                for n in range(3)
            ]
            for place, name in enumerate(streams)
        }  # fmt: skip
        for name, own in rows.items():
            given_rows[name] += own
        one.feed(**rows)

    for number in range(3):
        feed(number)
    held = chain.format(5) + " AND c.v > 1"
    added = one.engine.query(held, name="held", start="state")
    feed(3)
    assert added.coverage()["exact_from"] <= 0
    for name, sql in (("held", held), ("wide", chain.format(9))):
        expected = bag(results(parse_query(sql, streams), streams, given_rows))
        assert expected
        assert one.answer(name) == expected
    one.run.stop()


def test_a_change_leaves_nothing_of_the_plan_before_it(live):
    one = live({"q": WIDE})
    before = Path(one.run.executor.job.plan._path)
    assert before.exists()
    one.engine.query(NARROW, name="narrow")
    one.feed(**rows_at(0))
    assert Path(one.run.executor.job.plan._path).exists()
    assert not before.exists()
