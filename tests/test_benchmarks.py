import json
import os
import xml.etree.ElementTree as ET
from argparse import Namespace
from dataclasses import replace
from functools import partial
from math import prod

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks import (
    aggregates,
    aggregates_figures,
    charts,
    command,
    datasets,
    disorder,
    fleet,
    fleet_figures,
    grouping,
    harness,
    join,
    kernels,
    multiway,
    multiway_figures,
    nexmark,
    partials,
    reoptimize,
    reoptimize_figures,
    sharing,
    sharing_figures,
    soak,
    step,
)
from benchmarks.aggregates import Asked
from benchmarks.charts import Panel
from benchmarks.datasets import DataSet, Law
from benchmarks.harness import Report
from lab.orders import brute_force
from penstock.planner.orders.cost import EngineCost
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.orders.sizes import Sizes
from penstock.results import retention
from tests.planner.drift import FIXED as SIMULATED

EPOCH_SECONDS = harness.EPOCH // 1_000_000
SVG = "{http://www.w3.org/2000/svg}"
PARTS = {"receive", "prepare", "open", "probe", "write", "store", "merge"}


def line_of(report):
    line = json.loads(report.line())
    assert set(line) == {"name", "equal", "ratios", "better", "figures"}
    assert set(line["better"]) == set(line["ratios"])
    return line


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Generated files, and all that runs leave behind, go to a folder of the test."""
    monkeypatch.setitem(os.environ, "TMPDIR", str(tmp_path))
    monkeypatch.setattr(harness.tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def here(fresh, spark, monkeypatch):
    """Workers run in this process, in the session of the tests: only their answers matter, not their measurements."""
    monkeypatch.setattr(harness, "session", lambda cores, **settings: spark)
    return fresh


def test_unequal_results_have_no_ratio():
    assert line_of(Report("x", True, {"spark": 2.00049}))["ratios"] == {"spark": 2.0}
    assert line_of(Report("x", False, {"spark": 2.0}))["ratios"] == {}


def test_each_ratio_says_whether_more_is_better():
    assert line_of(Report("x", True, {"rate": 2.0, "rows": 1.1}, lower=["rows"]))["better"] == {
        "rate": "higher",
        "rows": "lower",
    }


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


def test_groups_within_groups_have_the_same_results_in_every_way(capsys):
    assert grouping.main(["--rows", "400", "--steps", "1"]) == 0
    *shown, last = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("| case | apart, ms |")
    line = json.loads(last)
    assert line["equal"]
    assert set(line["ratios"]) == set(grouping.WAYS[1:])
    cases = {name: ways for name, ways in line["figures"].items() if name != "machine"}
    assert len(cases) == 8
    # Rows of one a are in one task; partials by a are stored unless windows are assembled from those by (a, b).
    assert all(ways["of new partials"]["sent"] == 400 < ways["apart"]["sent"] for ways in cases.values())
    assert all(ways["at closing"]["stored"] < ways["of new partials"]["stored"] for ways in cases.values())


def test_growth_is_the_last_tenth_beside_the_first_one_after_the_warm_up(monkeypatch):
    monkeypatch.setattr(soak, "ROUND", 5)
    times = [0.0, *np.cumsum([9.0] * 9 + [1.0] * 25 + [2.0] * 25)]
    samples = {n: {"memory": 100 + n, "files": 0} for n in range(0, 60, 2)}
    found = soak.growth(times, samples, 10)
    assert found["step"] == {"first": 1.0, "last": 2.0, "growth": 2.0}
    assert found["memory"] == {"first": 112.0, "last": 157.0, "growth": 1.402}
    assert found["files"]["growth"] == 1.0


def test_a_sum_of_rows_knows_no_order_but_each_value_and_each_row():
    table = pa.table({"a": [1, 2, 3], "b": [3, 2, None]})

    def summed(*tables):
        found = soak.Sum()
        for one in tables:
            found(one)
        return found

    assert summed(table) == summed(table.slice(1), table.slice(0, 1))
    changed = (table.slice(1), pa.concat_tables([table, table.slice(0, 1)]), table.select(["b", "a"]))
    assert all(summed(table) != summed(other) for other in changed)


@pytest.mark.spark
@pytest.mark.long
def test_the_soak_is_equal_and_measures_five_kinds_of_growth(here, monkeypatch):
    monkeypatch.setattr(soak, "ROUND", 2)
    monkeypatch.setattr(soak, "RETAIN", "1 second")
    monkeypatch.setattr(retention, "UPKEEP_EVERY", 2)
    case = soak.Case(rows=20, warm_up=3, least=13, seconds=0, change_every=4)
    line = line_of(soak.measure(case, cores=1))
    assert (line["name"], line["equal"], set(line["ratios"])) == ("soak", True, {"soak"})
    assert line["better"] == {"soak": "lower"}
    figures = line["figures"]
    assert all(figures["right"].values())
    assert figures["changes"] == 3
    assert figures["late"] == dict.fromkeys("ab", 3 * (figures["bad"]["a"] // 2 - 1))
    assert set(soak.MEASURED) <= set(figures["growth"])
    assert figures["growth"]["memory"]["first"] > 0


@pytest.mark.long
@pytest.mark.spark
def test_the_join_has_equal_results_and_a_ratio(fresh, monkeypatch):
    monkeypatch.setattr(join, "WARM_UP", 0)
    cases = join.Case(rows=900, files=3, pairs=1), join.Case(rows=300, files=3, pairs=1, general=True)
    report = join.measure(*cases, cores=1, stores=["hdfs"])
    line = line_of(report)
    figures = line["figures"]
    assert (line["name"], line["equal"], set(line["ratios"])) == ("join", True, {"spark", "general"})
    assert figures["general"]["results"] > 0
    assert figures["results"] > 0
    assert set(figures["rows_per_second"]) == {"penstock", "hdfs"}
    assert set(figures["phases_ms"]["penstock"]["step"]) >= {"plan", "job", "commit"}
    assert set(figures["phases_ms"]["penstock"]["task"]) >= PARTS
    assert figures["state"]["hdfs"]["rows"] > 0
    assert "penstock" in join.describe(report)


@pytest.mark.spark
@pytest.mark.long
def test_the_step_is_held_against_its_budget(fresh, monkeypatch):
    monkeypatch.setattr(step, "WARM_UP", 1)
    report = step.measure([20], steps=2, cores=1, sides={"unsynced": False})
    line = line_of(report)
    assert (line["name"], line["equal"], set(line["ratios"])) == ("step", True, {"budget"})
    found = line["figures"]["ms"]["20 rows"]["unsynced"]
    assert found["p90"] >= found["median"] > 0
    assert "unsynced" in step.describe(report)


@pytest.mark.spark
@pytest.mark.long
def test_sharing_has_equal_results_and_its_ratios(fresh, monkeypatch):
    monkeypatch.setattr(sharing, "SETTLED", 1)
    monkeypatch.setattr(sharing, "WARM_UP", 0)
    case = sharing.Case(rows=600, files=3, seconds=2.0, longest=4)
    report = sharing.measure(case, case, count=2, counts=(1, 4), pairs=1, cores=1, many=20)
    line = line_of(report)
    assert (line["name"], line["equal"]) == ("sharing", True)
    assert set(line["ratios"]) == {"spark_k2", "own_k4", "state_k4"}
    assert line["ratios"]["state_k4"] >= 1
    assert line["figures"]["beside_spark"]["results"] > 0
    assert line["figures"]["by_number"]["4"]["rows_in_reach"] > 0
    whole = line["figures"]["planning_whole"]
    assert whole["queries"] == line["figures"]["planning"]["queries"] == 20
    assert whole["ms"] > 0


def test_queries_of_the_sharing_benchmark_mean_the_same_on_all_sides():
    asked = sharing.Asked(3, 2, 10, 20)
    assert asked.spark().count("INTERVAL") == 2
    assert asked.duckdb() == (
        "a.k = b.k AND a.n >= 10 AND a.n < 20 "
        "AND epoch_us(b.ts) - epoch_us(a.ts) < 3000000 AND epoch_us(a.ts) - epoch_us(b.ts) < 2000000"
    )
    three = sharing.opposed(4, 20)
    assert [(q.life_a, q.life_b, q.life_c) for q in three] == [(5, 20, 15), (10, 15, 20), (15, 10, 5), (20, 5, 10)]
    assert "FROM a [RANGE 5 SECONDS] AS a, b [RANGE 20 SECONDS] AS b, c [RANGE 15 SECONDS] AS c" in three[0].penstock()
    assert three[0].duckdb().count("epoch_us(c.ts) - epoch_us(") == 2
    assert len(sharing.wide(8, 60)) == 8
    assert sharing.selective(64, 40)[0].life_a == 40
    assert sharing.planning(10)["queries"] == 10


# -- the command line -------------------------------------------------------------------------------------------------


def ran(arguments, capsys, **changes):
    """The exit code and output of a command that measures nothing, and the options it was given."""
    given = []

    def measure(options):
        given.append(options)
        return Report("x", True, {"a": 2.0})

    sizes = {"rows": (10, "rows"), **command.CORES}
    code = command.run("x", "text", measure, everything="more", sizes=sizes, arguments=arguments, **changes)
    return code, capsys.readouterr().out.splitlines(), given


def test_all_commands_have_the_same_options_and_their_own_sizes(capsys):
    code, lines, (options,) = ran(["--all", "--rows", "7"], capsys, describe=lambda report: f"table of {report.name}")
    assert (code, options.all, options.rows, options.cores) == (0, True, 7, 2)
    assert lines[0] == "table of x"
    assert json.loads(lines[-1])["ratios"] == {"a": 2.0}


def test_with_json_a_command_prints_one_line(capsys):
    _, lines, _ = ran(["--json"], capsys, describe=lambda report: "table")
    assert len(lines) == 1


def test_a_worker_does_its_job_and_measures_nothing(capsys):
    code, lines, given = ran(["--worker", '{"n": 2}'], capsys, worker=lambda job: {"twice": 2 * job["n"]})
    assert (code, json.loads(lines[-1]), given) == (0, {"twice": 4}, [])


# -- charts -----------------------------------------------------------------------------------------------------------


def texts(path):
    return ["".join(element.itertext()).strip() for element in ET.parse(path).iter(f"{SVG}text")]


def test_a_chart_says_what_it_shows_in_which_units_and_how_that_was_found(tmp_path):
    lines = Panel("Rate", "queries", "rows per second", [1, 10], {"ours": [5.0, None], "theirs": [1.0, 2.0]}, log="x")
    bars = replace(lines, title="Gain", y="%", at=["few", "many"], kind="bars", log="")
    path = charts.draw("x", "A chart", "simulated", [lines, bars], tmp_path)
    shown = texts(path)
    for text in (
        "A chart (simulated)",
        "Rate",
        "Gain",
        "queries",
        "rows per second",
        "%",
        "few",
        "many",
        "ours",
        "theirs",
    ):
        assert text in shown
    assert path.read_bytes() == charts.draw("y", "A chart", "simulated", [lines, bars], tmp_path).read_bytes()


def test_no_two_series_of_a_chart_look_alike():
    looks = list(zip(charts.COLOURS, charts.MARKS, charts.HATCHES, strict=True))
    assert len({colour for colour, *_ in looks}) == len({mark for _, mark, _ in looks}) == len(looks)
    assert len(set(charts.HATCHES)) == len(charts.HATCHES) == len(charts.STROKES)


# -- joins of several streams -----------------------------------------------------------------------------------------


def test_a_join_by_loops_has_the_answer_of_the_join_by_index(fresh):
    case = multiway.Case.even(3, rows=200, files=2, life=5, seconds=5.0, matches=2.0)
    looped = replace(case, tie="loop")
    assert looped.inputs() == case.inputs()
    assert " OR " in looped.penstock()
    assert multiway.expected(case) == multiway.expected(looped)
    assert multiway.expected(case)[0] > 0


def test_streams_of_different_rates_have_their_own_rows_and_keys(fresh):
    case = multiway.Case(rows=(40, 80), keys=(3, 500), lives=(5, 10), files=2)
    a, b = (pq.read_table(case.inputs() / name) for name in "ab")
    assert (len(a), len(b)) == (40, 80)
    assert max(a["k"].to_pylist()) < 3 < max(b["k"].to_pylist())


def test_in_the_lab_the_best_order_and_an_index_save_comparisons():
    """Table 8: the best order allows 4.6 times the rate of the worst, five buckets 7.2 times that of none."""
    table = multiway_figures.RATES, multiway_figures.LENGTHS, multiway_figures.VALUES
    best, worst = multiway_figures.BEST, multiway_figures.WORST
    runs = [(best, 1), (best, 5), (worst, 5)]
    plain, indexed, poor = (multiway_figures.simulate(*table, loops, 0, buckets, 20.0) for loops, buckets in runs)
    assert plain["results"] == indexed["results"] == poor["results"] > 0
    assert 3.5 < plain["comparisons_per_row"] / indexed["comparisons_per_row"] < 7.5
    assert 3.5 < poor["comparisons_per_row"] / indexed["comparisons_per_row"] < 6


@pytest.mark.spark
@pytest.mark.long
def test_joins_of_several_streams_have_equal_results_and_their_ratios(fresh, monkeypatch):
    monkeypatch.setattr(multiway, "WARM_UP", 0)
    case = multiway.Case.even(3, rows=300, files=2, life=20, matches=2.0)
    theta = multiway.Case.even(2, rows=200, files=2, life=20, seconds=20.0, tie="apart")
    line = line_of(multiway.measure([case], theta, pairs=1, cores=1))
    assert (line["name"], line["equal"], set(line["ratios"])) == ("multiway", True, {"spark_3way"})
    assert line["figures"]["3way"]["results"] > 0
    assert set(line["figures"]["theta"]["seconds_by_tasks"]) == {"1", "2"}


@pytest.mark.spark
@pytest.mark.long
def test_all_pictures_of_joins_are_measured_and_drawn(here, monkeypatch):
    monkeypatch.setattr(multiway_figures, "MODES", ("adaptive",))
    monkeypatch.setattr(multiway_figures, "INTERVALS", (20.0,))
    monkeypatch.setattr(multiway_figures, "EXPIRATIONS", (1, 4))
    monkeypatch.setattr(multiway_figures, "LOOPED", (5_000,))
    sides = multiway.Sides(cores=1)
    sides.started["penstock"] = multiway.worker
    side = {"rows_per_second": 1, "state_rows": 1}
    before = {"3way": {"penstock": side, "native": side}, "theta": {"seconds_by_tasks": {"1": 2.0, "2": 1.0}}}
    found = multiway_figures.all_figures(sides, before, scale=0.01, folder=here / "figures")
    assert set(found) == {"orders", "indexes", "intervals", "expirations", "lab_orders", "lab_intervals"}
    assert all(cell["equal"] for picture in found.values() for cell in picture.values())
    orders, rare = found["orders"], found["expirations"]
    assert orders["worst order"]["work"]["candidates"] > orders["best order"]["work"]["candidates"]
    assert rare["4"]["most_state_rows"] > rare["1"]["most_state_rows"]
    assert found["indexes"]["loop, 5000"]["results"] > 0
    drawn = {path.name for path in (here / "figures").iterdir()}
    names = {"multiway-beside-spark", "multiway-orders", "multiway-loops", "multiway-intervals", "multiway-lab"}
    assert drawn == {f"{name}.svg" for name in names} | {"multiway.json"}


# -- orders that change -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("values", "exponent"), [(10, 0.8), (1000, 0.2), (1000, 0.6), (7, 0.0)])
def test_values_follow_their_law(values, exponent):
    drawn = Law(values, exponent).draw(100_000, np.random.default_rng(1))
    share = np.arange(1, values + 1) ** -exponent
    expected = 100_000 * share / share.sum()
    counted = np.bincount(drawn, minlength=values + 1)
    assert counted[0] == 0
    assert len(counted) == values + 1
    squares = ((counted[1:] - expected) ** 2 / expected).sum()
    assert squares < values - 1 + 5 * np.sqrt(2 * values)  # chi square, five deviations


def test_a_law_of_many_values_needs_no_table_of_them():
    law, count = Law(20_000_000, 0.8), 100_000
    drawn = law.draw(count, np.random.default_rng(2))
    assert drawn.max() <= law.values
    whole = 5 * law.values**0.2 - 4.4375  # the sum of all i^-0.8, as an integral with zeta(0.8)
    for most in (1, 100, 10_000):
        expected = count * (np.arange(1, most + 1) ** -0.8).sum() / whole
        assert abs((drawn <= most).sum() - expected) < 5 * np.sqrt(expected)


def test_data_sets_are_those_of_the_thesis():
    uni = DataSet("uni", 6, 10_000, 5_000, 20).laws(0)
    assert uni[0] == Law(500_000)
    assert all(law.values in datasets.UNI and not law.exponent for law in uni[1:])
    puni = DataSet("puni", 5, 10_000, 5_000, 20)
    phases = [puni.laws(number) for number in range(20)]
    assert phases[0] == (Law(500_000),) * 5
    assert len(set(phases)) == 4
    assert all(law.values in datasets.PUNI for laws in phases for law in laws)
    zipf = DataSet("zipf", 6, 10_000, 5_000, 20, exponent=0.8).laws(0)
    assert [law.exponent for law in zipf] == [0.8, 0.8, 0, 0, 0, 0]
    assert DataSet("uni", 6, 10_000, 5_000, 20) == DataSet("uni", 6, 10_000, 5_000, 20)
    assert uni == DataSet("uni", 6, 15_000, 5_000, 20).laws(3)  # windows differ, values do not


@pytest.mark.parametrize(("kind", "exponent"), [("uni", 0.0), ("puni", 0.0), ("zipf", 0.2)])
def test_the_answer_by_last_rows_is_that_of_the_join(fresh, kind, exponent):
    data = DataSet(kind, 4, window=200, rows=100, files=8, exponent=exponent, scale=0.005, seed=3)
    inputs = data.inputs()
    tables = ", ".join(f"'{inputs}/{n}/*.parquet' {n}" for n in data.names)
    select = ", ".join(f"{n}.id AS {n}_id" for n in data.names)
    near = [
        f"epoch_us({y}.ts) - epoch_us({x}.ts) < {data.life * 1_000_000}"
        for x in data.names
        for y in data.names
        if x != y
    ]
    where = " AND ".join([*(f"a.k = {n}.k" for n in data.names[1:]), *near])
    assert data.answer() == data.fingerprint(f"SELECT {select} FROM {tables} WHERE {where}")
    assert data.answer()[0] > 0


def test_cells_name_every_window_number_of_streams_and_exponent():
    cells = reoptimize_figures.cells(scale=0.1)
    assert len(cells) == 5 + 5 + 6
    assert cells["puni, 6 streams, 15000 rows"].window == 1_500
    assert {data.life for data in cells.values()} == {1, 2, 3}


@pytest.mark.parametrize(("fixed", "number"), [("rare_c_first", 0), ("rare_b_first", 39)])
def test_the_fixed_orders_are_the_best_of_all_in_their_half(fixed, number):
    case = reoptimize.DRIFT
    orders, graph = reoptimize.FIXED[fixed], JoinGraph(4, classes=[range(4)])
    shares = [case.share(name, number) for name in case.names]

    def sizes(start):
        def composites(positions):
            # Every row is looked up; one with a key that others have too meets all rows of that key at each position.
            others = [shares[p] * case.many for p in positions if p != start]
            return shares[start] * prod(others) if others else 1.0

        return Sizes(start, (case.rows * case.life,) * 4, composites)

    assert orders == {start: brute_force(graph, sizes(start), EngineCost(graph))[1] for start in range(4)}
    assert list(reoptimize.FIXED.values()) == list(SIMULATED.values())


def test_ratios_of_work_are_those_of_the_worse_half_and_of_steady_streams():
    def worked(first, second):
        return {"work": [first, second], "work_of_all_steps": [first + 50, second]}

    moving = {"rare_c_first": worked(100, 900), "rare_b_first": worked(700, 200), "adaptive": worked(110, 240)}
    still = {"rare_c_first": worked(100, 100), "adaptive": worked(101, 100)}
    assert reoptimize.work_ratios(moving, still) == {"best_work": 1.2, "stationary_work": 1.005}
    assert reoptimize.work_ratios(moving, still, "work_of_all_steps") == {"best_work": 1.2, "stationary_work": 1.004}


@pytest.mark.spark
@pytest.mark.long
def test_orders_that_change_have_equal_results_ratios_and_pictures(here, monkeypatch):
    class Here:
        """Stands for the process of the workers."""

        def __init__(self, module):
            assert module == "benchmarks.reoptimize"

        def __call__(self, job):
            return reoptimize.worker({**job, "rewarm": False})

        def close(self):
            pass

    monkeypatch.setattr(harness, "Peer", Here)
    monkeypatch.setattr(reoptimize, "SETTLED", 1)
    drift = reoptimize.Case(rows=200, files=8, many=10.0)
    steady = reoptimize.Case(rows=200, files=4, many=10.0, drifts=False)
    chosen = {
        name: data
        for name, data in reoptimize_figures.cells(files=4, scale=0.02).items()
        if name in {"puni, 4 streams, 10000 rows", "zipf 0.8, 6 streams, 5000 rows"}
    }
    figures = partial(reoptimize_figures.all_figures, asked=chosen, folder=here / "figures")
    line = line_of(reoptimize.measure(drift, steady, pairs=1, cores=1, modes=["adaptive"], figures=figures))
    assert (line["name"], line["equal"]) == ("reoptimize", True)
    assert set(line["ratios"]) == {"best_work", "best", "worst", "stationary_work", "stationary"}
    assert set(line["figures"]["ratios_of_all_steps"]) == {"best_work", "stationary_work"}
    ours = line["figures"]["drift"]["adaptive"]
    assert sum(ours["work_of_all_steps"]) == sum(ours["work_by_step"]) > sum(ours["work"])
    sets = line["figures"]["sets"]
    assert set(sets) == set(chosen)
    assert all(cell["adaptive"]["checks"] > 0 and "work_gain" in cell["pop"] for cell in sets.values())
    drawn = {path.stem for path in (here / "figures").iterdir()}
    views = {f"reoptimize-{view}-{measure}" for view in ("windows", "streams") for measure in ("work", "seconds")}
    assert drawn == views | {"reoptimize-drift", "reoptimize-overhead", "reoptimize"}


# -- sharing, all of it -----------------------------------------------------------------------------------------------


def test_the_model_predicts_what_slicing_saves_in_each_cell_of_the_grid():
    """The savings of 8.2 in percent, over both other strategies, at selectivities of 0.2, 0.5 and 0.8."""
    table = {
        (5, 10, 30): ((33, 21, 8), (11, 10, 8)),
        (10, 20, 30): ((27, 17, 7), (19, 17, 15)),
        (20, 25, 30): ((13, 8, 3), (28, 27, 26)),
    }
    for (lives, (up, down)), name in zip(table.items(), sharing_figures.MIXES, strict=True):
        assert tuple(round(30 * share) for share in sharing_figures.MIXES[name]) == lives
        found = [sharing_figures.modelled(lives, share) for share in (0.2, 0.5, 0.8)]
        assert [cell["pull_up"] * 100 for cell in found] == pytest.approx(up, abs=0.8)
        assert [cell["push_down"] * 100 for cell in found] == pytest.approx(down, abs=0.8)


@pytest.mark.spark
@pytest.mark.long
def test_all_pictures_of_sharing_are_measured_and_drawn(here):
    small = sharing.Case(rows=2_400, files=12, seconds=2.0, longest=12)
    sizes = sharing_figures.Sizes(
        sweep=replace(small, files=2), numbers=(1, 16), native=0,
        grid=replace(small, rows=96_000, files=24, seconds=1.0), mixes=("uniform",), selectivities=(0.2,),
        chains=replace(small, files=2), chained=(12,), streams=replace(small, files=3, streams="abc"), three=(1, 2),
    )  # fmt: skip
    found = sharing_figures.all_figures(lambda side: sharing.worker, 1, sizes, here / "figures")
    assert all(cell["equal"] for picture in found.values() for cell in picture.values())
    cell = found["grid"]["uniform, 0.2"]
    # A slice holds up to an interval more than its windows. The model's saving over push_down (18.5 %) is not asserted:
    # the engine's push_down was seen to hold no more rows than state_slice, where the model has a second copy of b.
    assert cell["saved"]["pull_up"] == pytest.approx(cell["saved_by_model"]["pull_up"], abs=0.1)
    assert abs(cell["saved"]["push_down"]) <= 0.05  # both hold what is in reach, and up to a twentieth more
    drawn = {path.stem for path in (here / "figures").iterdir()}
    for count in ("1", "16"):
        held = found["numbers"][count]["penstock"]
        assert held["state_rows"] >= held["rows_in_reach"] > 0
        assert held["state_bytes"] > 0
    three = found["three_streams"]["2"]
    assert three["state_slice"]["results"] == three["isolated"]["results"] > 0
    assert three["state_slice"]["state_rows"] < three["isolated"]["state_rows"]
    names = {"numbers", "three", "chains", "chains-state", "saved", "strategies-rate", "strategies-state"}
    assert drawn == {f"sharing-{name}" for name in names} | {"sharing"}


# -- window aggregates ------------------------------------------------------------------------------------------------

PICTURES = (aggregates_figures.slack, aggregates_figures.unions, aggregates_figures.skew)
FEW = aggregates.Input(rows=400, files=3, keys=20, seconds=10)


def by_definition(data, asked, due):
    """All windows that hold a row of a key and end by `due`, each over its own rows."""
    second, folder = 1_000_000, data.folder()
    ends = f"SELECT unnest(range({EPOCH_SECONDS - 100}, {due // second} + 1)) AS e"
    sql = (
        f"SELECT k, e * {second}, count(*), sum(v) FROM '{folder}/s/*.parquet' JOIN ({ends}) "
        f"ON epoch_us(ts) < e * {second} AND epoch_us(ts) >= (e - {asked.range}) * {second} "
        f"WHERE e % {asked.slide} = 0 GROUP BY ALL HAVING count(*) >= {asked.least} ORDER BY ALL"
    )
    return duckdb.connect().execute(sql).fetchall()


@pytest.mark.parametrize("asked", [Asked(60, 1), Asked(5, 2, 3), Asked(7, 10), Asked(3, 3, 4), Asked(1, 1)])
def test_the_answer_from_panes_is_that_of_the_definition(fresh, asked):
    answer = aggregates.Answer(FEW)
    for due in answer.due:
        wanted = by_definition(FEW, asked, due)
        assert [tuple(row) for row in answer.rows(asked, due).tolist()] == wanted
        assert answer.count(asked, due) == len(wanted) > 0
        since = due - 5_000_000
        assert answer.rows(asked, due, since).tolist() == [list(row) for row in wanted if row[1] > since]


def test_only_results_that_are_due_and_right_agree(fresh):
    answer, queries = aggregates.Answer(FEW), [Asked(6, 2), Asked(9, 1, 2)]

    def found(due, change=None):
        tables = []
        for asked in queries:
            rows = answer.rows(asked, due)
            if change:
                change(rows)
            ended = pa.array(rows[:, 1]).cast(pa.timestamp("us", tz="UTC"))
            tables.append(pa.table({"k": rows[:, 0], "ended": ended, "c": rows[:, 2], "total": rows[:, 3]}))
        counts = [len(table) for table in tables]
        return counts, lambda number, since: tables[number].filter(
            pc.greater(tables[number]["ended"].cast(pa.int64()), since)
        )

    before, after = answer.due
    assert answer.agrees(queries, *found(before))
    assert answer.agrees(queries, *found(after))
    assert not answer.agrees(queries, *found(before - 3_000_000))
    for column in range(4):

        def change(rows, column=column):
            rows[-1, column] += 1

        assert not answer.agrees(queries, *found(after, change))


def test_files_of_a_longer_input_begin_with_those_of_a_shorter_and_no_row_is_late(fresh):
    tables = [
        [pq.read_table(f) for f in sorted((data.folder() / "s").iterdir())]
        for data in (FEW, replace(FEW, files=1, tail=7))
    ]
    assert tables[0][0] == tables[1][0]
    assert [len(table) for table in tables[1]] == [400, 7]
    times = np.concatenate([table["ts"].to_numpy().astype("int64") for table in tables[0]])
    assert 0 < (np.maximum.accumulate(times) - times).max() < aggregates.DELAY * 1_000_000
    shares = np.bincount(np.concatenate([table["k"].to_numpy() for table in tables[0]]), minlength=20)
    assert shares[0] > 3 * shares[9] > 0


def test_many_queries_have_windows_of_their_own():
    asked = aggregates.mix(64, 300)
    assert len(set(asked)) == 64
    assert (asked[0].range, asked[0].slide) == (600, 1)
    assert {query.slide for query in asked} == set(aggregates.SLIDES)


@pytest.mark.long
@pytest.mark.spark
def test_spark_windows_that_begin_elsewhere_end_where_ours_do(here, spark, monkeypatch):
    monkeypatch.setattr(aggregates, "WARM_UP", 0)
    setting = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(setting, "false")
    try:
        data = replace(FEW, files=1, tail=7)
        queries = [Asked(60, 1), Asked(5, 2, 3), Asked(9, 5)]
        found = aggregates.worker(aggregates.job(data, "native", queries, 1))
    finally:
        spark.conf.unset(setting)
    assert found["equal"]
    assert found["result_rows"] == sum(found["counts"]) > 0
    assert found["result_bytes"] > 0
    assert len(found["batch_ms"]) == 2


@pytest.mark.spark
@pytest.mark.long
def test_sliding_aggregates_have_equal_results_and_their_ratios(fresh, monkeypatch):
    monkeypatch.setattr(aggregates, "WARM_UP", 0)
    case = aggregates.Case(short=FEW, capped=2, full=FEW, tail=7, share=1, counts=(1, 4), least=3)
    report = aggregates.measure(case, pairs=1, cores=1)
    line = line_of(report)
    assert (line["name"], line["equal"]) == ("aggregates", True)
    assert set(line["ratios"]) == {"spark_sliding", "spark_sliding_600", "own_k4"}
    for part in ("sliding", "sliding_600"):
        for side in ("penstock", "native"):
            assert line["figures"][part][side]["result_rows"] > 0
            assert line["figures"][part][side]["result_bytes"] > 0
    assert line["figures"]["sliding_600"]["native"]["batches"] == 1
    assert "sliding_600" in aggregates.describe(report)


@pytest.mark.spark
@pytest.mark.long
def test_all_pictures_of_aggregates_are_measured_and_drawn(here, monkeypatch):
    monkeypatch.setattr(aggregates, "WARM_UP", 0)
    sizes = aggregates_figures.Sizes(
        ranges=FEW, lengths=(1, 7), capped=1, numbers=FEW, counts=(1, 3), isolated=3, native=1, tail=7, block=49,
        slacks=(0, 50), skews=(0, 5), rows=2_000, groups=(33,), step=200.0, together=3, stored=3, held=2_000,
    )  # fmt: skip
    case = aggregates.Case(short=FEW, full=FEW, least=3)
    found = aggregates_figures.all_figures(lambda side: aggregates.worker, case, 1, sizes, here / "figures")
    assert all(cell["equal"] for picture in found.values() for cell in picture.values())
    assert set(found["ranges"]["7"]) == {"equal", *aggregates_figures.ONE, "native"}
    # Plans differ in what they hold, and not in what they answer.
    sides = {plan: cell["penstock"] for plan, cell in found["plans"].items()}
    assert len({side["results"] for side in sides.values()}) == 1
    assert sides["paned"]["state_rows"] == sides["differential"]["state_rows"] < sides["buffered"]["state_rows"]
    assert sides["paned"]["state_rows"] != sides["wid"]["state_rows"]
    few, many = (found["stored"][way]["penstock"] for way in ("panes and runs", "every row"))
    assert few["results"] == many["results"] == many["result_rows"] > few["result_rows"]
    assert set(found["numbers"]["3"]) == {"equal", "shared", "isolated"}
    drawn = {path.stem for path in (here / "figures").iterdir()}
    assert drawn == {"aggregates", *(f"aggregates-{picture}" for picture in found)}


@pytest.mark.spark
@pytest.mark.long
def test_rows_and_partials_of_mappers_and_of_spark_come_to_the_same(fresh, monkeypatch):
    monkeypatch.setattr(partials, "CASES", (partials.Case("few", FEW, 1),))
    report = partials.measured(Namespace(pairs=1, cores=2))
    line = line_of(report)
    assert line["equal"]
    spark, engine = (line["figures"][place]["few"] for place in ("spark", "engine"))
    assert 20 < spark["partials"] < spark["rows"] == FEW.all_rows
    assert engine["rows"]["sent_rows"] == engine["all_rows"] == partials.BATCHES * FEW.rows
    assert engine["kept"] <= engine["partials"]["sent_rows"] < engine["rows"]["sent_rows"]
    assert "| few |" in partials.describe(report)


@pytest.mark.long
def test_in_each_bucket_rows_or_partials_take_hardly_more_room_than_the_better_of_both():
    found = aggregates_figures.held(aggregates_figures.Sizes(held=6_000))
    assert len(found) == 10
    assert all(cell["equal"] for cell in found.values())
    assert all(cell["beside_better"] <= 1.1 for cell in found.values())
    # On some data set neither of both is the better one everywhere.
    assert any(cell["beside_better"] < 0.95 for cell in found.values())


@pytest.mark.parametrize("name", disorder.EXPERIMENTS)
def test_the_experiments_on_disorder_have_the_shapes_told(name, monkeypatch):
    monkeypatch.setattr(disorder, "_SIZES", aggregates_figures.Sizes(rows=6_000, groups=(66, 520), skews=(0, 10, 20)))
    experiment = disorder.EXPERIMENTS[name]
    cells = experiment.run()
    assert all(cell["equal"] for cell in cells.values())
    assert experiment.shape(cells), experiment.expected


def test_the_lab_pictures_of_aggregates_have_the_published_shapes():
    """Figs 6-12, 8-8 and 6-19."""
    sizes = aggregates_figures.Sizes(slacks=(0, 218, 434, 491), skews=(0, 10, 20), rows=6_000)
    slack, unions, skew = (picture(sizes) for picture in PICTURES)
    assert slack["punctuation"]["wrong_percent"] == slack["491"]["wrong_percent"] == 0
    assert all(slack[length]["wrong_percent"] > 0 for length in ("0", "218", "434"))
    assert slack["491"]["seconds"] > slack["punctuation"]["seconds"]
    assert unions["20"]["merge"] - unions["10"]["merge"] == pytest.approx(100, abs=5)
    assert unions["20"]["meld"] <= unions["0"]["meld"] + 3
    assert all(cell["beside_better"] <= 1.1 for cell in skew.values())
    assert all(cell["equal"] for picture in (slack, unions, skew) for cell in picture.values())


# -- a fleet of different queries -------------------------------------------------------------------------------------


def test_a_larger_fleet_asks_the_same_again_by_other_names():
    names = fleet_figures.fleet_of(24)
    assert len(set(names)) == 24
    assert names[21:] == tuple(f"{name}_2" for name in names[:3])
    second = fleet.again(nexmark.queries(), names[21])
    assert second.sql.startswith(f"CREATE QUERY {names[21]} AS")
    assert second.duckdb == nexmark.queries()[names[0]].duckdb


def test_spark_is_asked_for_windows_that_its_watermark_has_passed_in_whole_milliseconds():
    assert fleet.native_watermark(nexmark.Events(300, 3, 6)) % 1000 == 0


@pytest.mark.spark
@pytest.mark.long
def test_a_run_of_the_fleet_is_compared_with_duckdb(here):
    events = {"step": 3000, "steps": 3, "seconds": 60}
    queries = ["q1", "q12", "q11", "q20"]
    job = {"queries": queries, "events": events, "cores": 2}
    found, read = (fleet.worker({"side": side, **job}) for side in ("penstock", "reading"))
    assert found["equal"], found["different"]
    assert found["phases"]["mappers"]
    assert found["first_seconds"] < found["seconds"]
    assert read["equal"], read["different"]
    assert read["read_rows"] > 3000


def test_pictures_of_the_fleet_have_all_sides(tmp_path):
    one = {"step_seconds": 0.5, "phases": {"mappers": {"read": 0.1}, "tasks": {"receive": 0.2}}}
    cell = {"equal": True, "penstock": one, "duckdb": {"step_seconds": 0.2}}
    numbers = {"1": {**cell, "spark": {"step_seconds": 1.5}}, "40": cell}
    fleet_figures.draw({"numbers": numbers, "sizes": {"20000": cell}}, tmp_path)
    shown = texts(tmp_path / "fleet-steps.svg")
    assert {"penstock", "duckdb", "spark"} <= set(shown)
    assert {"read", "receive"} <= set(texts(tmp_path / "fleet-phases.svg"))
