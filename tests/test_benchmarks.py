import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import harness, join, kernels, sharing, step
from benchmarks.harness import Report

PARTS = {"receive", "prepare", "open", "probe", "write", "store", "merge"}


def line_of(report):
    line = json.loads(report.line())
    assert set(line) == {"name", "equal", "ratios", "figures"}
    return line


def test_unequal_results_have_no_ratio():
    assert line_of(Report("x", True, {"spark": 2.00049}))["ratios"] == {"spark": 2.0}
    assert line_of(Report("x", False, {"spark": 2.0}))["ratios"] == {}


def test_the_last_line_is_json_and_the_exit_code_tells_equality(capsys):
    assert harness.finish(Report("x", True, {"a": 1.0})) == 0
    assert harness.finish(Report("x", False, {"a": 1.0})) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["equal"] is False


def test_pairs_are_interleaved_and_every_other_one_is_reversed():
    order = []
    sides = {name: lambda name=name: order.append(name) or {} for name in "ab"}
    found = harness.interleaved(sides, 3)
    assert "".join(order) == "abbaab"
    assert {name: len(runs) for name, runs in found.items()} == {"a": 3, "b": 3}


def test_the_ratio_is_the_median_of_pairs_and_not_the_ratio_of_medians():
    assert harness.pair_ratio([10, 100, 30], [10, 50, 10]) == 2


def test_generated_rows_keep_their_disorder_and_files_their_age(tmp_path):
    harness.StreamFiles(rows=1000, files=4, keys=10, seed=1).write(tmp_path)
    files = sorted(tmp_path.iterdir())
    times = np.concatenate([pq.read_table(f)["ts"].to_numpy().astype("int64") for f in files])
    assert len(times) == 1000
    behind = np.maximum.accumulate(times) - times
    assert 0 < behind.max() < 2_000_000 < join.DELAY * 1_000_000
    assert [f.stat().st_mtime for f in files] == sorted({f.stat().st_mtime for f in files})


def test_data_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(harness.tempfile, "gettempdir", lambda: str(tmp_path))
    made = []
    first = harness.cached("x", {"n": 1}, made.append)
    assert harness.cached("x", {"n": 1}, made.append) == first
    assert harness.cached("x", {"n": 2}, made.append) != first
    assert len(made) == 2


def test_kernels_agree_and_print_a_table(capsys):
    assert kernels.main(["--scale", "0.01", "--repeats", "1", "--all"]) == 0
    *shown, last = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("| case |")
    line = json.loads(last)
    assert line["equal"]
    assert set(line["ratios"]) == {"numpy", "polars", "duckdb"}
    assert line["figures"]["even keys"]["matches"] > 0


@pytest.mark.spark
def test_the_join_has_equal_results_and_a_ratio(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "TMPDIR", str(tmp_path))
    monkeypatch.setattr(harness.tempfile, "tempdir", None)
    monkeypatch.setattr(join, "WARM_UP", 0)
    report = join.measure(rows=900, files=3, pairs=1, cores=1, stores=["hdfs"], synced=0)
    line = line_of(report)
    figures = line["figures"]
    assert (line["name"], line["equal"], set(line["ratios"])) == ("join", True, {"spark"})
    assert figures["results"] > 0
    assert set(figures["rows_per_second"]) == {"penstock", "hdfs"}
    assert set(figures["phases_ms"]["penstock"]["step"]) >= {"plan", "job", "commit"}
    assert set(figures["phases_ms"]["penstock"]["task"]) >= PARTS
    assert figures["state"]["hdfs"]["rows"] > 0
    assert "penstock" in join.describe(report)


@pytest.mark.spark
def test_the_step_is_held_against_its_budget(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "TMPDIR", str(tmp_path))
    monkeypatch.setattr(harness.tempfile, "tempdir", None)
    monkeypatch.setattr(step, "WARM_UP", 1)
    report = step.measure([20], steps=2, cores=1, sides={"unsynced": False})
    line = line_of(report)
    assert (line["name"], line["equal"], set(line["ratios"])) == ("step", True, {"budget"})
    found = line["figures"]["ms"]["20 rows"]["unsynced"]
    assert found["p90"] >= found["median"] > 0
    assert "unsynced" in step.describe(line["figures"])


@pytest.mark.spark
def test_sharing_has_equal_results_and_its_ratios(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "TMPDIR", str(tmp_path))
    monkeypatch.setattr(harness.tempfile, "tempdir", None)
    monkeypatch.setattr(sharing, "SETTLED", 1)
    monkeypatch.setattr(sharing, "WARM_UP", 0)
    case = sharing.Case(rows=600, files=3, seconds=2.0, longest=4)
    report = sharing.measure(case, case, count=2, counts=(1, 4), pairs=1, cores=1)
    line = line_of(report)
    assert (line["name"], line["equal"]) == ("sharing", True)
    assert set(line["ratios"]) == {"spark_k2", "own_k4", "state_k4"}
    assert line["ratios"]["state_k4"] >= 1
    assert line["figures"]["beside_spark"]["results"] > 0
    assert line["figures"]["by_number"]["4"]["rows_in_reach"] > 0


def test_queries_of_the_sharing_benchmark_mean_the_same_on_all_sides():
    asked = sharing.Asked(3, 2, 10, 20)
    assert asked.spark().count("INTERVAL") == 2
    assert asked.duckdb() == (
        "a.k = b.k AND a.n >= 10 AND a.n < 20 "
        "AND epoch_us(b.ts) - epoch_us(a.ts) < 3000000 AND epoch_us(a.ts) - epoch_us(b.ts) < 2000000"
    )
    assert len(sharing.wide(8, 60)) == 8
    assert sharing.selective(64, 40)[0].life_a == 40
    assert sharing.planning(10)["queries"] == 10
