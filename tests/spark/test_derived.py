"""Queries over queries, and aggregates over joins, through Spark: answers are the reference's for any input split."""

import contextlib
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError, SqlError
from penstock.model.time import SECOND
from penstock.reference import admit
from penstock.results.views import views_of
from penstock.sql import CreateStream, parse_script
from penstock.step.derived import waiting
from penstock.step.stepper import Stepper
from tests.aggregates import STREAM, same_bag
from tests.effort import examples
from tests.monitors import check_accounts
from tests.named import evaluate
from tests.oracle import bag
from tests.spark.monitored import answers, committed, monitor, without_steps
from tests.spark.replay import Replay, drain, rows_of, stream, wait_until
from tests.spark.test_online import STREAMS, live, rows_at  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*RANGE ALL")]

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # an example takes seconds: a failing one is shown as drawn
LENGTHS = st.integers(1, 9)
# Dense enough that what stands on several levels has answers too.
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(-4, 16),
            "k": st.sampled_from(("a", "a", "b", None)),
            "g": st.sampled_from((0, 0, 1, None)),
            "v": st.sampled_from((0, 1, 2, 3, None)),
            "x": st.just(0.5),
        }
    ),
    min_size=2,
    max_size=7,
)


@st.composite
def stacks(draw):
    """A join, what reads it in every way, and what reads that; each with windows of its own."""
    n = [draw(LENGTHS) for _ in range(31)]
    n[0], n[1], n[8], n[15], n[17] = (n[i] + 2 for i in (0, 1, 8, 15, 17))  # those of joins are longer than slides
    origin = draw(st.sampled_from(("", "", " ORIGIN 3", " ORIGIN -4")))
    return {
        "pairs": f"SELECT p.t AS p_t, q.t AS q_t, p.k, q.v, result_time AS found "
        f"FROM p [RANGE {n[0]}], q [RANGE {n[1]}] WHERE p.g = q.g",
        "counted": f"SELECT window_start, window_end AS at, k, count(*) AS n, sum(v) AS s "
        f"FROM pairs [RANGE {n[2]} SLIDE {n[3]}] GROUP BY k",
        "by_p": f"SELECT window_end, count(*) AS n, max(v) AS m FROM pairs [RANGE {n[4]} SLIDE {n[5]} ON p_t]",
        "by_q": f"SELECT last(k), collect_list(v), window_end FROM pairs [RANGE {n[6]} SLIDE {n[7]} ON q_t] "
        "WHERE v > 0",
        "filtered": "SELECT p_t, v, result_time FROM pairs WHERE v > 1",
        "joined": f"SELECT x.p_t, x.v, q.v AS w, q.t, result_time "
        f"FROM pairs [RANGE {n[8]} ON p_t] AS x, q [RANGE {n[9]}] WHERE x.k = q.k",
        "itself": f"SELECT x.v, y.v AS w, result_time "
        f"FROM pairs [RANGE {n[10]}] AS x, pairs [RANGE {n[11]} ON q_t] AS y WHERE x.k = y.k",
        "twice": f"SELECT window_end AS upto, max(n) AS most FROM counted [RANGE {n[12]} SLIDE {n[13]}]",
        "thrice": f"SELECT window_end, sum(most) AS s FROM twice [TUMBLING {n[14]}]",
        "ticked": f"SELECT window_end AS at, p.k, count(*) AS n, sum(q.v) AS s, first(p.v) AS f "
        f"FROM p [RANGE {n[15]} SLIDE {n[16]}{origin}], "
        f"q [RANGE {n[17]} SLIDE {n[16]}{origin}] WHERE p.g = q.g GROUP BY p.k",
        "always": f"SELECT window_end, count(*) AS n FROM p [RANGE {n[18]} SLIDE {n[19]}], q [RANGE ALL SLIDE {n[19]}] "
        "WHERE p.k = q.k",
        "alone": "SELECT t, k, count(*) AS n, result_time AS at FROM p GROUP BY t, k",
        "of_alone": f"SELECT window_end, sum(n) AS n, max(at) AS m FROM alone [TUMBLING {n[14]}]",
        "moments": f"SELECT p.t, q.t AS u, count(*) AS n, result_time AS at FROM p [RANGE {n[20]}], q [RANGE {n[21]}] "
        "WHERE p.k = q.k GROUP BY p.t, q.t",
        "of_moments": f"SELECT window_end, sum(n) AS n, max(at) AS m FROM moments [TUMBLING {n[22]}]",
        "mixed": f"SELECT window_end, q.g, count(*) AS n, max(x.v) AS m "
        f"FROM pairs [RANGE {n[24]} SLIDE {n[25]} ON p_t] AS x, "
        f"q [RANGE {n[26]} SLIDE {n[25]}] WHERE x.k = q.k GROUP BY q.g",
        "ranked": f"SELECT window_end, count(*) AS n FROM counted [RANGE {n[29]} ROWS SLIDE {n[30]} ROWS]",
        "low": "SELECT t, k, v FROM p WHERE v < 2",
        "high": "SELECT t, k, v FROM q WHERE g = 0",
        "again": f"SELECT window_end, k, count(*) AS n, sum(v) AS s FROM (low "
        f"UNION ALL high) [RANGE {n[27]} SLIDE {n[28]}] GROUP BY k",
        "above": f"SELECT window_end, max(s) AS s FROM ticked [RANGE {n[22]} SLIDE {n[23]}]",
    }


@contextlib.contextmanager
def eager_upkeep():
    """Runs and results are merged, and expire, at every opportunity."""
    with (
        patch("penstock.state.compaction.FAN_IN", 2),
        patch("penstock.state.manifest.SNAPSHOT_EVERY", 3),
        patch("penstock.results.retention.UPKEEP_EVERY", 1),
        patch("penstock.results.retention.MANY_FILES", 2),
    ):
        yield


# The simplest example of all is one row again and again: `make test` is not to have that as its only one.
BATCHES = st.lists(st.tuples(ROWS, ROWS), min_size=2, max_size=4).filter(lambda found: len({str(b) for b in found}) > 1)


def check(spark, root, queries, batches, *, delay=3, tasks=2, cuts=(), plan="auto"):
    """Answer all batches, by several engines one after the other if `cuts` says so."""
    streams = {name: replace(STREAM, name=name, delay=delay) for name in ("p", "q")}
    replay = Replay(root / "source", *streams.values())
    with committed() as manifests:
        for number, (left, right) in enumerate(batches):
            replay.add(p=left, q=right)
            if number in cuts:
                drain(replay.engine(spark, root / "state", queries, tasks=tasks, plan=plan))
        engine = replay.engine(spark, root / "state", queries, tasks=tasks, plan=plan)
        drain(engine, final=True)
    arrived = {"p": [left for left, _ in batches], "q": [right for _, right in batches]}
    rows = {n: [row for step in admit(streams[n], arrived[n]) for row in step.accepted] for n in streams}
    found = answers(engine, queries)
    for name, expected in evaluate(queries, streams, rows).items():
        assert same_bag(without_steps(found[name]), expected), f"{name}: {queries[name]}"
        event(f"{name}: {'some' if expected else 'none'}")
    manifest = engine.manifest()
    assert not manifest.runs
    assert monitor(engine, manifests, found, low=0, high=0) == len(queries)
    for derived in engine.network().derived_streams:
        counts = manifest.counters.stream(derived.name)
        check_accounts(msgspec.structs.asdict(counts))
        assert counts.late == counts.bad == 0, derived.name
        own = [view.record.id for view in views_of(engine.catalog, derived.query)]
        if derived.joined:  # one row of each result, at however many ticks it counts; of those at no tick none
            assert counts.rows <= sum(manifest.counters.query(n).results for n in own)
        else:  # results of a join below an aggregate go once they have been taken in
            assert counts.rows == sum(f.count(n) for f in manifest.results.values() for n in own), derived.name
    return engine


@settings(max_examples=examples(2), deadline=None, phases=PHASES)
@given(stacks(), BATCHES, st.integers(0, 8), st.integers(1, 3), st.sets(st.integers(0, 3)))
def test_results_are_the_references(spark, tmp_path_factory, queries, batches, delay, tasks, cuts):
    with eager_upkeep():
        check(spark, tmp_path_factory.mktemp("run"), queries, batches, delay=delay, tasks=tasks, cuts=cuts)


@pytest.mark.long
@settings(max_examples=examples(20), deadline=None, phases=PHASES)
@given(stacks(), BATCHES, st.integers(0, 8), st.integers(1, 3), st.sets(st.integers(0, 3)))
def test_many_results_are_the_references(spark, tmp_path_factory, queries, batches, delay, tasks, cuts):
    with eager_upkeep():
        check(spark, tmp_path_factory.mktemp("run"), queries, batches, delay=delay, tasks=tasks, cuts=cuts)


# ----------------------------------------------------------------------------------------------------- one by one

PAIRS = "SELECT a.ts AS a_ts, a.v, b.v AS w, result_time FROM a [RANGE 4 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k"
KEPT = "SELECT v, w, result_time AS at FROM pairs WHERE w > 1"
COUNTED = "SELECT window_start, window_end, count(*) AS n FROM pairs [RANGE 2 SECONDS SLIDE 1 SECOND ON a_ts]"
TICKED = (
    "SELECT window_start, window_end, count(*) AS n, sum(b.v) AS s "
    "FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS], b [RANGE 3 SECONDS SLIDE 2 SECONDS] WHERE a.k = b.k"
)


def expected(queries, numbers):
    """The reference's answers to the rows of these steps."""
    streams = {s.name: s for s in STREAMS}
    rows = {name: [row for number in numbers for row in rows_at(number)[name]] for name in streams}
    return {name: bag(rows) for name, rows in evaluate(queries, streams, rows).items()}


def test_what_comes_later_reads_what_is_found_from_then_on_and_is_told_apart_when_dropped(live):  # noqa: F811
    one = live({"pairs": PAIRS, "first": COUNTED})
    for number in range(2):
        one.feed(**rows_at(number))
    for name, sql in (("kept", KEPT), ("counted", COUNTED), ("ticked", TICKED)):
        one.engine.query(sql, name=name)
    for number in range(2, 4):
        one.feed(**rows_at(number))
    one.engine.drop("first")
    one.feed(**rows_at(4))
    one.run.stop(final=True)
    queries = {"pairs": PAIRS, "kept": KEPT, "counted": COUNTED, "ticked": TICKED}
    whole, before = expected(queries, range(5)), expected(queries, range(2))
    assert one.answer("pairs") == whole["pairs"]
    assert one.answer("kept") == whole["kept"] - before["kept"]
    # Four seconds had passed, so that windows from there on are seen whole.
    for name in ("counted", "ticked"):
        seen = {row: n for row, n in whole[name].items() if row[0] >= 4 * SECOND}
        assert one.answer(name) == seen, name
        assert seen
    manifest = one.run.stepper.manifest
    assert not manifest.runs
    assert all(counts.late == 0 for counts in manifest.counters.streams.values())
    assert {p for p in manifest.progress if " by " in p} == {d.name for d in one.engine.network().derived_streams}


def test_windows_come_while_the_engine_runs_and_explain_shows_what_reads_what(live):  # noqa: F811
    ever = (
        "SELECT window_start, window_end, count(*) AS n "
        "FROM a [RANGE ALL SLIDE 2 SECONDS], b [RANGE ALL SLIDE 2 SECONDS] WHERE a.k = b.k"
    )
    queries = {"pairs": PAIRS, "kept": KEPT, "counted": COUNTED, "ticked": TICKED, "ever": ever}
    one = live(queries)
    for number in range(4):
        one.feed(**rows_at(number))
    # The newest rows are of second 7, and rows may be two seconds late: nothing before second 5 can come.
    whole = expected(queries, range(4))
    wait_until(lambda: one.answer("kept") == whole["kept"])
    wait_until(lambda: one.answer("ticked") == {r: n for r, n in whole["ticked"].items() if r[1] <= 5 * SECOND})
    # A row of second 5 may meet one of stream a that came just after second 1.
    wait_until(lambda: one.answer("counted") == {r: n for r, n in whole["counted"].items() if r[1] <= SECOND})
    text = one.engine.explain()
    assert "5 queries, 2 streams" in text
    assert "derived stream pairs#1 by a_ts: results of query pairs, event time a_ts" in text
    assert "results of the join below ticked, event time tick, each counts at every tick (2 seconds)" in text
    assert [q["name"] for q in one.engine.queries()] == list(queries)
    assert list(one.run.status()["queries"]) == list(queries)
    ticked = one.engine.explain("ticked")
    assert "join a(k) x b(k)" in ticked
    assert not re.search(r"\bkept\b(?! as runs)", ticked), ticked
    assert "aggregate pairs#1 by a_ts by nothing in panes" in one.engine.explain_select(COUNTED)
    one.run.stop(final=True)
    for name in queries:
        assert one.answer(name) == whole[name], name


def test_a_query_that_others_read_stays_as_it_is(spark, tmp_path):
    engine = Replay(tmp_path / "source", *STREAMS).engine(spark, tmp_path / "state", {"pairs": PAIRS, "kept": KEPT})
    with pytest.raises(RegistrationError, match="'kept' reads the results of query 'pairs'; drop that one first"):
        engine.drop("pairs")
    for other in (PAIRS.replace("a.v, ", ""), PAIRS.replace("4 SECONDS", "5 SECONDS")):
        with pytest.raises(RegistrationError, match="can be replaced only by one with the same columns"):
            engine.query(other, name="pairs", replace=True)
    engine.query(PAIRS + " AND a.v > 3", name="pairs", replace=True)
    with pytest.raises(RegistrationError, match="cannot begin from the state"):
        engine.query(KEPT, name="state", start="state")
    with pytest.raises(SqlError, match="Unknown stream kept"):
        engine.query("SELECT v, w, at FROM kept", name="kept", replace=True)
    with pytest.raises(RegistrationError, match="reserved"):
        engine.query(KEPT, name="_kept")
    engine.query("SELECT count(*) AS n, window_end FROM kept [TUMBLING 2 SECONDS]", name="above")
    for name in ("above", "kept", "pairs"):
        engine.drop(name)
    assert engine.queries() == []


def test_a_query_goes_on_being_read_when_another_takes_its_place(live):  # noqa: F811
    one = live({"pairs": PAIRS, "kept": KEPT})
    for number in range(2):
        one.feed(**rows_at(number))
    one.engine.query(PAIRS + " AND a.v > 3", name="pairs", replace=True)
    for number in range(2, 4):
        one.feed(**rows_at(number))
    one.run.stop(final=True)
    early = expected({"pairs": PAIRS, "kept": KEPT}, range(2))
    late = expected({"pairs": PAIRS + " AND a.v > 3", "kept": KEPT}, range(2, 4))
    assert one.answer("kept") == early["kept"] + late["kept"]


def test_who_comes_with_a_restart_does_not_read_what_was_found_before_it(spark, tmp_path):
    replay = Replay(tmp_path / "source", *STREAMS)
    queries = {"pairs": PAIRS, "kept": KEPT}
    for number in range(3):
        replay.add(**rows_at(number))
    # As after a crash: the results of the last step wait.
    with patch.object(Stepper, "quiesce"), patch.object(Stepper, "tick", return_value=False):
        first = replay.engine(spark, tmp_path / "state", queries)
        drain(first)
    assert waiting(first.network(), first.manifest(), partial(views_of, first.catalog))
    replay.add(**rows_at(3))
    engine = replay.engine(spark, tmp_path / "state", queries | {"later": KEPT})
    drain(engine, final=True)
    whole, before = expected(queries, range(4)), expected(queries, range(3))
    assert bag(rows_of(engine.results("kept"))) == whole["kept"]
    assert bag(rows_of(engine.results("later"))) == whole["kept"] - before["kept"]


FIXTURES = Path(__file__).parents[1] / "sql" / "fixtures" / "001-window-queries"


def fixture(name):
    lines = (FIXTURES / name).read_text().splitlines()
    return next(line for line in lines if not line.startswith("--"))


def test_queries_over_both_directions_of_connections(spark, tmp_path):
    """Q7-1 and Q7-2 of Li 2008, on a few packets."""
    declared = [s.stream for s in parse_script((FIXTURES / "streams.sql").read_text()) if isinstance(s, CreateStream)]
    streams = {
        s.name: replace(s, delay=2 * SECOND, source=None) for s in declared if s.name in ("S0", "S1", "M1", "M2")
    }
    queries = {
        "q7_1": fixture("q7-1.sql"),
        "j": fixture("q7-2-join.sql").replace("SELECT m1.ts", "SELECT m1.ts AS m1_ts"),
        "q7_2": "SELECT count(*) AS n, window_end FROM j [RANGE 1 MINUTE SLIDE 1 MINUTE ON m1_ts]",
        "windows": fixture("q7-2-windows.sql").split(" HAVING")[0],
    }
    replay = Replay(tmp_path / "source", *streams.values())
    rows = {name: [] for name in streams}
    for step in range(2):
        given = {name: [packet(s, step, n, name in ("S1", "M2")) for n in range(6)] for name, s in streams.items()}
        replay.add(**given)
        rows = {name: rows[name] + given[name] for name in rows}
    engine = replay.engine(spark, tmp_path / "state", queries)
    drain(engine, final=True)
    # The reference does not compare times of different streams, so that Q7-1 is counted here.
    met = Counter((x["ts"], y["ts"]) for x in rows["S0"] for y in rows["S1"] if is_answer(x, y))
    assert bag(rows_of(engine.results("q7_1"))) == bag((*times, n) for times, n in met.items())
    assert max(met.values()) > 1
    for name, answer in evaluate({n: sql for n, sql in queries.items() if n != "q7_1"}, streams, rows).items():
        assert same_bag(rows_of(engine.results(name)), answer), name
        assert answer, name


def is_answer(x, y):
    """Whether y acknowledges x, less than two minutes later."""
    ports = (x["srcIP"], x["destIP"], x["srcPort"], x["destPort"]) == (
        y["destIP"],
        y["srcIP"],
        y["destPort"],
        y["srcPort"],
    )
    return ports and 0 < y["ts"] - x["ts"] < 120 * SECOND


def packet(stream, step, number, answered):
    """The n-th packet of a step; those of one direction answer those of the other a second later."""
    ends = ["a", "b"][:: -1 if answered else 1]
    ports = [number % 2, 80][:: -1 if answered else 1]
    values = {
        "ts": (40 * step + 7 * (number // 3) + answered) * SECOND, "srcIP": ends[0], "destIP": ends[1],
        "srcPort": ports[0],
        "destPort": ports[1], "flag": "SYN_ACK" if answered else "SYN",
    }  # fmt: skip
    return {c.name: values.get(c.name) for c in stream.columns}


def test_readers_of_aggregates_get_each_window_once_however_it_comes_out(spark, tmp_path):
    replay = Replay(tmp_path / "source", *STREAMS)
    for number in range(5):
        replay.add(**rows_at(number))
    counts = "SELECT k, count(*) AS n, window_end AS at FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k"
    engine = replay.engine(spark, tmp_path / "state", {"plain": counts})
    engine.query(counts, name="slow", flush=1, behind=3)
    for name in ("plain", "slow"):
        engine.query(
            f"SELECT k, sum(n) AS n, window_end FROM {name} [TUMBLING 6 SECONDS] GROUP BY k", name=f"over_{name}"
        )
    engine.query(counts, name="early", emit="1 second")
    with pytest.raises(RegistrationError, match=r"cannot read query 'early', which shows windows more than once"):
        engine.query("SELECT k, n, at FROM early", name="over_early")
    drain(engine, final=True)
    windows = rows_of(engine.results("slow"))
    assert windows
    assert bag(windows) == bag(rows_of(engine.results("plain")))
    expected = Counter()
    for k, n, end in windows:
        expected[k, end // (6 * SECOND) * 6 * SECOND + 6 * SECOND] += n
    for name in ("over_plain", "over_slow"):
        assert {(k, end): n for k, n, end in rows_of(engine.results(name))} == expected, name
    assert not engine.manifest().runs


def test_groups_of_both_times_are_complete_when_each_stream_has_passed_its_own(spark, tmp_path):
    """Q7-1 with one stream far ahead: its early matches do not wait until the other stream reaches the newest time."""
    streams = [stream(name, "ts timestamp, k bigint") for name in "ab"]
    replay = Replay(tmp_path / "source", *streams)
    sql = (
        "SELECT a.ts, b.ts AS u, count(*) AS n FROM a [RANGE 60 SECONDS], b [RANGE 60 SECONDS] WHERE a.k = b.k "
        "GROUP BY a.ts, b.ts"
    )
    named = {
        "pairs": "SELECT a.ts AS a_ts, b.ts AS b_ts, result_time FROM a [RANGE 60 SECONDS], b [RANGE 60 SECONDS] "
        "WHERE a.k = b.k",
        "windows": "SELECT a_ts, b_ts, count(*) AS n, window_end "
        "FROM pairs [RANGE 10 SECONDS SLIDE 5 SECONDS] "
        "GROUP BY a_ts, b_ts",
    }
    given = [
        {"a": [{"ts": 50 * SECOND, "k": 1}] * 2, "b": [{"ts": 5 * SECOND, "k": 1}]},
        {"a": [{"ts": 58 * SECOND, "k": 2}], "b": [{"ts": 9 * SECOND, "k": 2}]},
        {"a": [{"ts": 58 * SECOND, "k": 2}], "b": [{"ts": 9 * SECOND, "k": 2}]},
    ]
    for rows in given[:2]:
        replay.add(**rows)
    engine = replay.engine(spark, tmp_path / "state", {"q": sql, **named})
    drain(engine)
    assert {name: p.value for name, p in engine.manifest().progress.items() if name in ("a", "b")} == {
        "a": 58 * SECOND,
        "b": 9 * SECOND,
    }
    assert [row[1:] for row in rows_of(engine.results("q"))] == [(5 * SECOND, 2)]
    assert not rows_of(engine.results("windows"))  # windows of some length go by the progress of all
    replay.add(**given[2])
    drain(engine)
    assert len(rows_of(engine.results("q"))) == 1  # rows of these times may still come
    drain(engine, final=True)
    assert bag(row[1:] for row in rows_of(engine.results("q"))) == bag([(5 * SECOND, 2), (9 * SECOND, 4)])
    whole = {name: [row for rows in given for row in rows[name]] for name in "ab"}
    answer = evaluate(named, {s.name: s for s in streams}, whole)["windows"]
    assert len(answer) == 4
    assert same_bag(rows_of(engine.results("windows")), answer)
