"""Spark compiles nothing more once a run has seen each kind of step: what changes between steps is not in the code."""

from datetime import UTC, datetime

import pytest

from penstock import Engine
from penstock.model.time import SECOND
from tests.spark.replay import Replay, generated_code, rows_of, stream, wait_until

pytestmark = pytest.mark.spark

COLUMNS = "ts timestamp, k bigint, s string, v bigint"
QUERIES = {
    "pairs": "SELECT a.v, b.v AS w, b.s, result_time AS at FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] "
    "WHERE a.k = b.k",
    "shown": "SELECT upper(a.s) AS s, b.v, result_time AS at FROM a [RANGE 2 SECONDS], b [RANGE 3 SECONDS] "
    "WHERE a.k = b.k",
    "counted": "SELECT window_end, s, count(*) AS n FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] "
    "WHERE substring(s, 2) <> '9' GROUP BY s",
    "of_pairs": "SELECT window_end, s, sum(w) AS w FROM pairs [TUMBLING 2 SECONDS] GROUP BY s",
    "of_shown": "SELECT window_end, s, count(*) AS n FROM shown [TUMBLING 2 SECONDS] GROUP BY s",
    "ticked": "SELECT window_end, count(*) AS n "
    "FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS], b [RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE a.k = b.k",
}


def compiled(spark):
    return spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount()


@pytest.mark.parametrize("plain", [True, False])
def test_nothing_is_compiled_in_steps_10_to_30(spark, tmp_path, plain):
    replay = Replay(tmp_path / "source", stream("a", COLUMNS), stream("b", COLUMNS))
    replay.plain = plain
    with generated_code(spark):
        engine = replay.engine(spark, tmp_path / "state", QUERIES)
        rounds(engine, replay, spark, 10)
    assert all(rows_of(engine.results(name)) for name in QUERIES)
    assert engine.manifest().counters.stream("b").late > 10


def rounds(engine: Engine, replay: Replay, spark, warm: int) -> None:
    """Batches with late rows, some of one stream only, and ticks that close windows and take in results."""
    run, come = engine.start(), {"a": 0, "b": 0}

    def arrived():
        counts = engine.manifest().counters
        return not run.active or all(counts.stream(n).rows == come[n] for n in come)

    try:
        for number in range(warm + 20):
            if number == warm:
                before = compiled(spark)
            at = 4 * number * SECOND
            fresh = [{"ts": at + n * SECOND // 2, "k": n % 3, "s": f"s{n}", "v": n} for n in range(6)]
            late = [{"ts": at - 10 * SECOND, "k": 1, "s": "late", "v": number}] if number else []
            # Spark may look while only one of two files is there.
            rows = {"a": fresh, "b": [*fresh, *late] if number % 3 else late}
            names = {2: "a", 3: "b"}.get(number, "ab")
            replay.add_alone(*names, **rows)
            come |= {name: come[name] + len(rows[name]) for name in names}
            wait_until(arrived)
            if number % 2:
                for name in "ab":
                    engine.advance(name, datetime.fromtimestamp(4 * number + 3, UTC))
        assert compiled(spark) == before
    finally:
        run.stop()
