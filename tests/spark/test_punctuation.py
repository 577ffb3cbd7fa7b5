"""Punctuations through Spark: they move progress, close groups, survive restarts, and never change an answer."""

import json
from collections import Counter
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, event, given, settings

from penstock import Engine, RegistrationError
from penstock.model import Column, Stream
from penstock.model.time import NEVER
from penstock.reference import admit, aggregate_results
from penstock.spark.job import Job
from penstock.sql import parse_query
from penstock.state.progress import group_progress
from penstock.step import heard
from tests.effort import examples
from tests.monitors import check_accounts, check_ordered
from tests.named import evaluate
from tests.oracle import bag
from tests.punctuated import grammatical
from tests.spark.monitored import answers, committed, monitor, without_steps
from tests.spark.replay import Replay, drain, rows_of, stream, wait_until

pytestmark = pytest.mark.spark

COLUMNS = "ts bigint, k bigint, v bigint, p bigint"
JOIN = "SELECT result_time, a.v, b.v AS w FROM a [RANGE 10], b [RANGE 10] WHERE a.k = b.k"


def row(ts, k, v):
    return {"ts": ts, "k": k, "v": v, "p": None}


def mark(value):
    return {"ts": None, "k": None, "v": None, "p": value}


def punctuated(root, *names, **options):
    return Replay(root, *(stream(name, COLUMNS, delay=None, punctuation="p", **options) for name in names))


def engine_of(replay, spark, state, *queries, named=None, **options):
    engine = Engine(spark, state, tasks=2, durable=False)
    for name, s in replay.streams.items():
        engine.stream(name, replay.frame(spark, name), event_time="ts", punctuation=s.punctuation, **options)
    for number, sql in enumerate(queries):
        engine.query(sql, name=f"q{number}", ordered=number == 1)
    for name, sql in (named or {}).items():
        engine.query(sql, name=name)
    return engine


def steps_of(engine, stream_names=("a", "b")):
    """(batch, progress by stream, counters) of every committed step."""
    found = []
    for path in sorted(Path(engine.store.path("manifest")).glob("[0-9]*.json")):
        body = json.loads(path.read_text().partition(" ")[2])
        progress = {n: body["progress"].get(n, {"value": NEVER})["value"] for n in stream_names}
        found.append((body["step"], progress, body["counters"]))
    return found


# Windows of every kind, over one stream, over both, over their join, and over what the join has found.
WINDOWED = {
    "sliding": "SELECT window_end, k, count(*) AS n, sum(v) AS s FROM a [RANGE 6 SLIDE 4] GROUP BY k",
    "landmark": "SELECT window_end, max(v) AS m, count(*) AS n FROM a [RANGE ALL SLIDE 5]",
    "session": "SELECT window_end, k, count(*) AS n FROM a [SESSION 3] WHERE v > 0 GROUP BY k",
    "ranked": "SELECT window_end, sum(v) AS s FROM a [RANGE 3 ROWS SLIDE 2 ROWS]",
    "each": "SELECT window_end, k, sum(v) AS s FROM a [RANGE 4 SLIDE 2 ROWS PARTITION BY k] GROUP BY k",
    "moments": "SELECT result_time, ts, k, count(*) AS n FROM a GROUP BY ts, k",
    "distinct": "SELECT DISTINCT ts, v FROM b",
    "united": "SELECT window_end, k, sum(v) AS s FROM (a UNION ALL b) [RANGE 5 SLIDE 5] GROUP BY k",
    "ticked": "SELECT window_end, a.k, count(*) AS n, max(b.v) AS m FROM a [RANGE 6 SLIDE 3], b [RANGE 9 SLIDE 3] "
    "WHERE a.k = b.k GROUP BY a.k",
    "found": "SELECT result_time, a.ts AS a_ts, a.v, b.v AS w FROM a [RANGE 10], b [RANGE 10] WHERE a.k = b.k",
    "counted": "SELECT window_end, count(*) AS n, sum(w) AS s FROM found [RANGE 4 SLIDE 2 ON a_ts]",
}
ARRIVED = grammatical().filter(lambda found: sum(map(len, found.batches)) > 5 and len(found.batches) in (3, 4))


@settings(max_examples=examples(3), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(ARRIVED, ARRIVED)
def test_answers_do_not_depend_on_arrival_if_punctuations_are_kept(spark, tmp_path_factory, left, right):
    root = tmp_path_factory.mktemp("run")
    replay = punctuated(root / "source", "a", "b")
    drawn = dict(zip("ab", (left, right), strict=True))
    for step in zip_longest(left.inline(), right.inline(), fillvalue=[]):
        replay.add(**dict(zip("ab", step, strict=True)))
    streams = replay.streams
    judged = {name: admit(streams[name], said.inline()) for name, said in drawn.items()}
    progress = {name: steps[-1].progress for name, steps in judged.items()}
    rows = {name: [{**row, "p": None} for batch in said.batches for row in batch] for name, said in drawn.items()}
    engine = engine_of(replay, spark, root / "state", JOIN, JOIN, named=WINDOWED)
    with committed() as manifests:
        status = drain(engine).status()
        for name in "ab":
            counts = status["streams"][name]
            check_accounts(counts)
            assert (counts["accepted"], counts["late"], counts["bad"]) == (len(rows[name]), 0, 0)
            assert counts["punctuations"] == sum(map(len, drawn[name].said))
            assert counts["progress"] == (progress[name] if progress[name] > NEVER else None)
        ordered = rows_of(engine.results("q1"))
        check_ordered([([r[0] for r in ordered], min(progress.values()))])
        said = engine.manifest().step
        drain(engine, final=True)
    expected = evaluate({"q0": JOIN, "q1": JOIN, **WINDOWED}, streams, rows)
    # A landmark has windows for as long as progress or rows go on.
    ever = aggregate_results(parse_query(WINDOWED["landmark"], streams), streams, rows, progress)
    expected["landmark"] = list({*ever, *expected["landmark"]})
    found = answers(engine, expected)
    for name, answer in expected.items():
        assert bag(without_steps(found[name])) == bag(answer), name
        event(f"{name}: {'some' if answer else 'none'}")
    # As much as punctuations admit; readers of results must wait for their input.
    for name in WINDOWED.keys() - {"found", "counted"}:
        wanted = aggregate_results(parse_query(WINDOWED[name], streams), streams, rows, progress)
        assert bag(row[:-1] for row in found[name] if row[-1] <= said) == bag(wanted), name
    # Every operator states its progress, and nothing comes behind it; "distinct" has no time to look at.
    assert monitor(engine, manifests, found) == len(expected) - 1
    assert not engine.manifest().runs


def test_punctuations_without_data_release_results_and_let_state_go(spark, tmp_path):
    replay = punctuated(tmp_path / "source", "a", "b")
    replay.add(a=[row(5, 1, 50)], b=[row(6, 1, 60)])
    engine = engine_of(replay, spark, tmp_path / "state", JOIN, JOIN)
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["batch"] == 0)
    assert rows_of(engine.results("q0")) == [(6, 50, 60)]
    assert rows_of(engine.results("q1")) == []
    replay.add(a=[mark(7)], b=[mark(7)])  # two files, of which a batch may see only the first
    wait_until(lambda: rows_of(engine.results("q1")) == [(6, 50, 60)])
    assert run.status()["state"]["rows"] == 2
    replay.add(a=[mark(100)], b=[mark(100)])
    wait_until(lambda: run.status()["state"]["runs"] == 0)
    run.stop()


def test_a_restart_keeps_progress_and_what_breaks_a_punctuation_is_late(spark, tmp_path):
    replay = punctuated(tmp_path / "source", "a")
    replay.add(a=[row(30, 1, 1), mark(20)])
    drain(engine_of(replay, spark, tmp_path / "state", "SELECT v FROM a"))
    replay.add(a=[row(20, 1, 2), row(19, 1, 3)])
    engine = engine_of(replay, spark, tmp_path / "state", "SELECT v FROM a")
    assert engine.manifest().progress["a"].value == 20
    check_accounts(drain(engine).status()["streams"]["a"])
    assert bag(rows_of(engine.results("q0"))) == bag([(1,), (2,)])
    assert [r[2] for r in rows_of(engine.late("a"))] == [3]


def test_malformed_punctuation_goes_aside(spark, tmp_path):
    replay = Replay(tmp_path / "source", stream("a", "ts timestamp, v bigint, p string", delay=None, punctuation="p"))
    replay.add(
        a=[
            {"ts": None, "v": 1, "p": "soon"},
            {"ts": None, "v": 2, "p": "1970-01-01 00:00:09Z"},
            {"ts": 9, "v": 3, "p": None},
        ]
    )
    engine = engine_of(replay, spark, tmp_path / "state", "SELECT v FROM a")
    counts = drain(engine).status()["streams"]["a"]
    check_accounts(counts)
    assert (counts["accepted"], counts["bad"], counts["punctuations"], counts["progress"]) == (1, 1, 1, 9_000_000)
    ((_, v, text, _, reason, _),) = rows_of(engine.bad("a"))
    assert (v, text, reason) == (1, "soon", "malformed punctuation")


MARKS = "ts bigint, k bigint, v_from bigint, v_to bigint"


def pattern(ts, k=None, low=None, high=None):
    return {"ts": ts, "k": k, "v_from": low, "v_to": high}


def patterned(replay, spark, state, sql="SELECT k, v FROM a"):
    engine = Engine(spark, state, tasks=2, durable=False)
    engine.stream("a", replay.frame(spark, "a"), event_time="ts", punctuation=replay.frame(spark, "marks"))
    engine.query(sql, name="q")
    return engine


def test_patterns_from_another_source_close_groups_and_the_whole_stream(spark, tmp_path):
    data = "ts bigint, k bigint, v bigint"
    replay = Replay(tmp_path / "source", stream("a", data), stream("marks", MARKS))
    replay.add(
        a=[{"ts": 9, "k": 1, "v": 0}],
        marks=[
            pattern(10, k=1),
            pattern(20, low=5, high=7),
            pattern(None, k=4),
            pattern(None),
            pattern(3, low=7, high=7),
        ],
    )
    drain(patterned(replay, spark, tmp_path / "state"))
    inside = [(9, 1, 1), (19, 2, 5), (19, 2, 6), (99, 4, 1)]
    outside = [(10, 1, 1), (9, 2, 1), (19, 2, 7), (20, 2, 5), (0, None, 2)]
    replay.add(a=[dict(zip(("ts", "k", "v"), values, strict=True)) for values in inside + outside], marks=[pattern(15)])
    engine = patterned(replay, spark, tmp_path / "state")
    progress = engine.manifest().progress["a"]
    declared = engine.catalog.stream("a")
    assert progress.value == NEVER
    assert [group_progress(declared, progress, {"k": k}) for k in (1, 2, 4)] == [10, NEVER, 2**62]
    assert group_progress(declared, progress, {"k": 2, "v": 6}) == 20
    counts = drain(engine).status()["streams"]["a"]
    check_accounts(counts)
    assert (counts["late"], counts["bad"], counts["punctuations"], counts["progress"]) == (4, 2, 4, 15)
    assert bag(tuple(r[:3]) for r in rows_of(engine.late("a"))) == bag(inside)
    assert bag(rows_of(engine.results("q"))) == bag([(1, 0), *(r[1:] for r in outside)])
    # What the progress of the whole stream has passed need not be remembered.
    assert {until for _, until in engine.manifest().progress["a"].closed} == {20, 2**62}


def test_thousands_of_groups_are_all_closed_and_the_plan_does_not_grow(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(heard, "MANY_GROUPS", 1_000)
    texts, planned = [], Job.sent

    def noted(self, *args):
        found = planned(self, *args)
        texts.append(found[0]._jdf.queryExecution().logical().toString())
        return found

    monkeypatch.setattr(Job, "sent", noted)
    source = stream("a", "ts bigint, k string, up boolean, v bigint")
    said = stream("marks", "ts bigint, k string, up boolean")
    replay = Replay(tmp_path / "source", source, said)
    names = [f"it's \\ {number}|\u00e9" for number in range(3_000)]
    replay.add(a=[{"ts": 1, "k": k, "up": True, "v": 1} for k in names], marks=[{"ts": 5, "k": names[0], "up": True}])

    def engine_of():
        engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
        engine.stream("a", replay.frame(spark, "a"), event_time="ts", punctuation=replay.frame(spark, "marks"))
        engine.query("SELECT k, count(*) AS n, window_end FROM a [TUMBLING 10] GROUP BY k", name="q")
        engine.query("SELECT k, up, count(*) AS n, window_end FROM a [TUMBLING 10] GROUP BY k, up", name="both")
        return engine

    drain(engine_of())
    replay.add(
        a=[{"ts": 4, "k": names[0], "up": True, "v": 2}],
        marks=[{"ts": 10 + n % 7, "k": k, "up": None if n % 2 else n % 4 == 0} for n, k in enumerate(names[1:], 1)],
    )
    run = drain(engine_of())
    status = run.status()
    assert status["streams"]["a"]["groups_ahead"] == 3_000
    assert [w for w in status["warnings"] if "more than 1,000 groups" in w]
    assert len(rows_of(engine_of().results("q"))) == 1_500
    closed = [n % 2 == 1 or n % 4 == 0 for n in range(1, 3_000)]
    assert len(rows_of(engine_of().results("both"))) == sum(closed)
    replay.add(a=[{"ts": 3, "k": k, "up": True, "v": 4} for k in names])
    engine = engine_of()
    assert drain(engine, final=True).status()["streams"]["a"]["late"] == 1 + 1 + sum(closed)
    rows = Counter({k: n for k, n, _ in rows_of(engine.results("q"))})
    assert sum(rows.values()) == 3_000 + 3_000 - 1 - sum(closed)
    assert len(max(texts, key=len)) < 20_000, "the text of the plan grows with the groups"
    assert not any(name in text for text in texts for name in names[-3:])


def test_a_delay_in_rows_counts_positions_by_sequence(spark, tmp_path):
    replay = Replay(tmp_path / "source", stream("a", "ts bigint, n bigint"))
    times = [10, 30, 20, 40, 50, 60]
    replay.add(a=[{"ts": ts, "n": n} for n, ts in enumerate(times)][::-1])
    replay.add(a=[{"ts": 39, "n": 6}, {"ts": 41, "n": 7}, {"ts": 70, "n": None}])

    def declared():
        engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
        engine.stream("a", replay.frame(spark, "a"), event_time="ts", delay="2 rows", sequence="n")
        engine.query("SELECT ts FROM a", name="q")
        return engine

    engine = declared()
    counts = drain(engine).status()["streams"]["a"]
    check_accounts(counts)
    assert [p["a"] for _, p, _ in steps_of(engine, ("a",))][:2] == [40, 60]
    assert (counts["late"], counts["bad"]) == (1, 1)
    assert [r[0] for r in rows_of(engine.late("a"))] == [39]
    assert [r[-2] for r in rows_of(engine.bad("a"))] == ["sequence is NULL"]


def test_streams_declared_in_sql_take_punctuations_from_a_stream(spark, tmp_path):
    for name, table in (
        ("a", {"ts": [1, 8], "k": [1, 2]}),
        ("m", {"ts": [5], "k": [None]}),
    ):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({c: pa.array(v, pa.int64()) for c, v in table.items()}), tmp_path / name / "0.parquet")
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
    engine.execute(f"""
        CREATE STREAM m (ts BIGINT, k BIGINT, WATERMARK FOR ts) ORDERED USING parquet OPTIONS (path '{tmp_path / "m"}');
        CREATE STREAM a (ts BIGINT, k BIGINT, WATERMARK FOR ts) PUNCTUATION FROM m
            USING parquet OPTIONS (path '{tmp_path / "a"}');
        CREATE QUERY q AS SELECT k FROM a;
    """)
    assert "punctuation by ts, k" in engine.explain()
    counts = drain(engine).status()["streams"]["a"]
    assert (counts["accepted"], counts["punctuations"], counts["progress"]) == (2, 1, 5)


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"delay": "100 rows"}, "sequence="),
        ({"delay": "20000 rows", "sequence": "k"}, "between 1 and"),
        ({"delay": "5 rows", "sequence": "s"}, "integer or a time"),
        ({"delay": 5, "ordered": True}, "leave out one"),
        ({"punctuation": "nothing"}, "no column 'nothing'"),
        ({"punctuation": "ts"}, "event time"),
        ({"punctuation": "flag"}, "cast it to bigint"),
    ],
)
def test_rules_that_could_not_work_are_refused(spark, tmp_path, options, fragment):
    replay = Replay(tmp_path / "source", stream("a", "ts bigint, k bigint, s string, flag boolean"))
    engine = Engine(spark, tmp_path / "state", durable=False)
    with pytest.raises(RegistrationError, match=fragment):
        engine.stream("a", replay.frame(spark, "a"), event_time="ts", **options)


@pytest.mark.parametrize(
    ("columns", "fragment"),
    [
        ("ts bigint, other bigint", "_from or _to"),
        ("ts bigint, k string", "bigint"),
        ("ts_to bigint", "alone"),
        ("ts bigint, d double", "double"),
    ],
)
def test_patterns_that_could_not_match_are_refused(spark, tmp_path, columns, fragment):
    replay = Replay(tmp_path / "source", stream("a", "ts bigint, k bigint, d double"), stream("marks", columns))
    engine = Engine(spark, tmp_path / "state", durable=False)
    with pytest.raises(RegistrationError, match=fragment):
        engine.stream("a", replay.frame(spark, "a"), event_time="ts", punctuation=replay.frame(spark, "marks"))


def test_ordered_says_that_no_row_comes_behind(spark, tmp_path):
    replay = Replay(tmp_path / "source", Stream("a", (Column("ts", "bigint"),), "ts", 0))
    replay.add(a=[{"ts": 5}])
    replay.add(a=[{"ts": 4}, {"ts": 5}])
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
    engine.stream("a", replay.frame(spark, "a"), event_time="ts", ordered=True)
    engine.query("SELECT ts FROM a", name="q")
    assert drain(engine).status()["streams"]["a"]["late"] == 1


def test_state_of_a_join_that_a_closed_key_no_longer_needs_is_not_kept(spark, tmp_path):
    data, said = "ts bigint, k bigint, s string, v bigint", "ts bigint, k bigint, s string"
    replay = Replay(tmp_path / "source", stream("a", data), stream("b", data), stream("marks", said))

    def plain(ts, k, v):
        return {"ts": ts, "k": k, "s": f"key {k}", "v": v}

    replay.add(a=[plain(5, 1, 50), plain(5, 2, 51)], marks=[{"ts": 20, "k": 1, "s": None}])
    replay.add(b=[plain(6, 1, 60), plain(6, 2, 61)], marks=[{"ts": 20, "k": None, "s": "key 1"}])
    replay.add(a=[plain(7, 2, 71), plain(7, 1, 70), plain(20, 1, 72)])
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
    engine.stream("a", replay.frame(spark, "a"), event_time="ts", punctuation=replay.frame(spark, "marks"))
    engine.stream("b", replay.frame(spark, "b"), event_time="ts", ordered=True)
    join = "SELECT a.v, b.v AS w FROM a [RANGE 10], b [RANGE 10] WHERE a.{0} = b.{0}"
    for column in ("k", "s"):
        engine.query(join.format(column), name=column)
    status = drain(engine).status()
    check_accounts(status["streams"]["a"])
    tables = {t.name: engine.manifest().counters.table(t.name) for t in engine.network().tables if t.stream == "b"}
    # The row of b with key 1 met what was there; a's key 1 is past its window, so it waits for nothing.
    assert (tables["b(k)"].stored, tables["b(k)"].out_of_reach) == (1, 1)
    # By the text nothing was closed when it came: it was stored, and went with the step after the punctuation.
    assert (tables["b(s)"].stored, tables["b(s)"].dropped) == (2, 1)
    assert {name: sum(r.rows for r in engine.manifest().runs_of(name)) for name in tables} == {"b(k)": 1, "b(s)": 1}
    assert status["streams"]["a"]["late"] == 1
    for column in ("k", "s"):
        assert bag(rows_of(engine.results(column))) == bag([(50, 60), (51, 61), (71, 61)])


COUNTS = "SELECT k, count(*) AS n, window_end FROM a [RANGE 10 SLIDE 5] GROUP BY k"
SESSIONS = "SELECT k, max(v) AS m, window_end FROM a [SESSION 5] GROUP BY k"
BEST = "SELECT count(*) AS n, window_end FROM a [RANGE 10 SLIDE 10]"


def test_windows_of_a_closed_group_come_out_once_and_leave_no_state(spark, tmp_path):
    data = "ts bigint, k bigint, v bigint"
    replay = Replay(tmp_path / "source", stream("a", data), stream("marks", "ts bigint, k bigint"))

    def opened():
        engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
        engine.stream("a", replay.frame(spark, "a"), event_time="ts", punctuation=replay.frame(spark, "marks"))
        for name, sql in (("counts", COUNTS), ("sessions", SESSIONS), ("best", BEST)):
            engine.query(sql, name=name)
        return engine

    def rows(*values):
        return [dict(zip(("ts", "k", "v"), row, strict=True)) for row in values]

    def held(engine):
        tables = [a for a in engine.network().aggregates if a.plan.groups]
        return sum(run.rows for a in tables for run in engine.manifest().runs_of(a.name))

    replay.add(a=rows((1, 1, 7), (3, 2, 8), (12, 2, 9)), marks=[{"ts": None, "k": 1}])
    engine = opened()
    drain(engine)
    # The step after the punctuation, here a tick with a job, closes the group, and the stream has no progress at all.
    assert engine.manifest().progress["a"].value == NEVER
    assert bag(rows_of(engine.results("counts"))) == bag([(1, 1, 5), (1, 1, 10)])
    assert rows_of(engine.results("sessions")) == [(1, 7, 6)]
    assert rows_of(engine.results("best")) == []
    assert held(engine) == 2
    replay.add(a=rows((4, 1, 1), (4, 2, 1)), marks=[{"ts": 10, "k": 2}])
    replay.add(a=rows((9, 2, 1), (13, 2, 2)), marks=[{"ts": 20, "k": None}])
    engine = opened()
    status = drain(engine).status()
    check_accounts(status["streams"]["a"])
    assert bag(r[:2] for r in rows_of(engine.late("a"))) == bag([(4, 1), (9, 2)])
    wanted = [(1, 1, 5), (1, 1, 10), (2, 2, 5), (2, 2, 10), (2, 2, 15), (2, 2, 20)]
    assert bag(rows_of(engine.results("counts"))) == bag(wanted)
    assert bag(rows_of(engine.results("sessions"))) == bag([(1, 7, 6), (2, 8, 9), (2, 9, 18)])
    assert bag(rows_of(engine.results("best"))) == bag([(3, 10), (2, 20)])
    engine = opened()
    drain(engine, final=True)
    assert bag(rows_of(engine.results("counts"))) == bag(wanted)
    assert not engine.manifest().runs


def test_a_punctuation_in_a_column_may_speak_of_one_group_only(spark, tmp_path):
    narrowed = stream("a", COLUMNS, delay=None, punctuation="p", patterns=(Column("k", "bigint"),))
    replay = Replay(tmp_path / "source", narrowed)
    said = [{**mark(20), "k": 1}, mark(8)]
    batches = [
        [row(5, 1, 1), row(5, 2, 2), said[0]],
        [row(3, 1, 4), row(3, 2, 8), row(21, 1, 16), said[1]],
        [row(9, 2, 32)],
    ]
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
    engine.stream("a", replay.frame(spark, "a"), event_time="ts", punctuation="p", patterns=["k"])
    engine.query("SELECT k, sum(v) AS s, window_end FROM a [TUMBLING 10] GROUP BY k", name="q")
    for batch in batches[:2]:
        replay.add(a=batch)
    run = drain(engine)
    # Progress is 8, and yet the first group is over until 20.
    assert rows_of(engine.results("q")) == [(1, 1, 10)]
    steps = admit(narrowed, batches)
    counts = run.status()["streams"]["a"]
    check_accounts(counts)
    assert (counts["late"], counts["punctuations"], counts["progress"]) == (1, 2, 8)
    assert [[r["v"] for r in step.late] for step in steps] == [[], [4], []]
    replay.add(a=batches[2])
    drain(engine, final=True)
    assert bag(rows_of(engine.results("q"))) == bag([(1, 1, 10), (2, 42, 10), (1, 16, 30)])


def test_what_a_punctuation_cannot_be_narrowed_by_is_refused(spark, tmp_path):
    replay = punctuated(tmp_path / "source", "a")
    engine, frame = Engine(spark, tmp_path / "state", durable=False), replay.frame(spark, "a")
    for options, reason in (
        ({"punctuation": "p", "patterns": ["kk"]}, "no column 'kk'"),
        ({"punctuation": "p", "patterns": ["ts"]}, "narrow it by other columns"),
        ({"delay": 5, "patterns": ["k"]}, "name that column with punctuation="),
    ):
        with pytest.raises(RegistrationError, match=reason):
            engine.stream("a", frame, event_time="ts", **options)
