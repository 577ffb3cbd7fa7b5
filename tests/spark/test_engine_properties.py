"""Random workloads through Spark: every query's bag is the reference's and DuckDB's, however the input was cut.

A run costs seconds whatever it computes, so each one answers several workloads at once; a query must not notice.
"""

import re
from dataclasses import replace
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from penstock.reference import admit, results
from penstock.spark import job
from tests.effort import examples
from tests.oracle import bag, duckdb_results
from tests.spark.replay import drain, names, replay_of, rows_of, steps_by_batch, values_of
from tests.workloads import Workload, workload

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*RANGE ALL")]

AT_ONCE = 5
SOURCE = re.compile(r"\b([a-f])(?=(?: \[[^]]*\])? AS r\d)")  # the streams in a workload's FROM

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # an example takes seconds: a failing one is shown as drawn


def together(workloads):
    """Several workloads as one, each with its own streams."""
    streams, queries = {}, []
    batches = [{} for _ in range(max(len(w.batches) for w in workloads))]
    for number, part in enumerate(workloads):
        streams |= {f"{name}{number}": replace(s, name=f"{name}{number}") for name, s in part.streams.items()}
        queries += [SOURCE.sub(rf"\g<1>{number}", sql) for sql in part.queries]
        for step, batch in enumerate(part.batches):
            batches[step] |= {f"{name}{number}": rows for name, rows in batch.items()}
    return Workload(streams, tuple(queries), tuple(batches))


def workloads(*, late=False):
    return st.lists(workload(late=late), min_size=AT_ONCE, max_size=AT_ONCE).map(together)


def assert_exact(engine, load):
    for name, query in zip(names(load), load.parsed, strict=True):
        expected = bag(results(query, load.streams, load.accepted))
        found = bag(rows_of(engine.results(name)))
        assert found == expected, f"{name}: {query.sql}"
        assert found == bag(duckdb_results(query, load.streams, load.accepted)), f"{name}: {query.sql}"
        event("some results" if found else "no result")


def assert_accounts(engine, load):
    """Every row is accounted for, by the engine's own counters and as the reference judges it."""
    manifest = engine.manifest()
    for name, stream in load.streams.items():
        counts = manifest.counters.stream(name)
        steps = admit(stream, load.arrivals(name))
        judged = {k: sum(len(getattr(s, k)) for s in steps) for k in ("accepted", "late", "bad")}
        assert counts.rows == sum(len(rows) for rows in load.arrivals(name))
        assert {k: getattr(counts, k) for k in judged} == judged
        for table in engine.network().tables_of(name):
            counts = manifest.counters.table(table.name)
            assert counts.stored + counts.unwanted + counts.out_of_reach == judged["accepted"], table.name
            held = sum(r.rows for r in manifest.runs_of(table.name))
            assert counts.stored - counts.dropped == held, table.name


def run(spark, root, load, *, tasks, cut=None):
    """Answer the workload to its end; with `cut`, by two engines one after the other, split at that step."""
    replay = replay_of(load, root / "source", steps=cut)
    if cut is not None:
        drain(replay.engine(spark, root / "state", names(load), tasks=tasks))
        for batch in load.batches[cut:]:
            replay.add(**batch)
    engine = replay.engine(spark, root / "state", names(load), tasks=tasks)
    drain(engine, final=True)
    return engine


@settings(max_examples=examples(2), phases=PHASES)
@given(load=workloads(late=True), tasks=st.integers(1, 3), folders=st.sets(st.integers(0, 30)), mappers=st.booleans())
def test_all_answer_alike_with_folders_and_without_and_rejected_rows_are_kept_aside(
    spark, tmp_path_factory, load, tasks, folders, mappers
):
    root = tmp_path_factory.mktemp("run")
    engine = replay_of(load, root / "source").engine(spark, root / "state", tasks=tasks)
    listed = []
    for number, (name, sql) in enumerate(names(load).items()):
        engine.query(sql, name=name)
        called = engine.catalog.record(name).item_names
        if number in folders and len(set(called)) == len(called):  # as a sink needs them
            engine.drop(name, purge=True)
            engine.query(sql, name=name, into=root / name)
            listed.append(name)
    with patch.object(job, "FEW_ROWS", -1 if mappers else job.FEW_ROWS):
        drain(engine, final=True)
    assert_exact(engine, load)
    assert_accounts(engine, load)
    for name in listed:
        files = sorted((root / name).glob("*.parquet"))
        assert bag(row for file in files for row in values_of(pq.read_table(file))) == bag(
            rows_of(engine.results(name))
        )
    event(f"{len(listed)} folders")
    step_of = steps_by_batch(engine)
    for name, stream in load.streams.items():
        steps = admit(stream, load.arrivals(name))
        for reason, side in (("late", engine.late(name)), ("bad", engine.bad(name))):
            rows = [
                (*(row[c.name] for c in stream.columns), step_of[batch])
                for batch, step in enumerate(steps)
                for row in getattr(step, reason)
            ]
            columns = [*(c.name for c in stream.columns), "_step"]
            assert side.columns == [*columns, "_reason", "_progress"]
            if rows:
                assert bag(rows_of(side.select(*columns))) == bag(rows), (name, reason)
            else:
                assert not any(s.stream == name and s.reason == reason for s in engine.manifest().sides)


@pytest.mark.long
@settings(max_examples=examples(40), phases=PHASES)
@given(load=workloads(late=True), tasks=st.integers(1, 3), cut=st.none() | st.integers(1, 4))
def test_many_results_are_the_references(spark, tmp_path_factory, load, tasks, cut):
    engine = run(spark, tmp_path_factory.mktemp("run"), load, tasks=tasks, cut=cut)
    assert_exact(engine, load)
    assert_accounts(engine, load)
