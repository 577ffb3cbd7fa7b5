"""The benchmark of views: its sources follow its truth, and a view that is wrong is seen to be."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import views, views_figures, views_sources
from benchmarks.harness import Report
from benchmarks.views import Bench, Case, Size
from benchmarks.views_shapes import Random
from benchmarks.views_sources import Chain, Files, expected, fingerprint
from penstock.demo.shop import server
from penstock.planner.views.relations import Relations, Tie
from penstock.planner.views.shape_cost import Costs
from penstock.views.sources.source import Answer
from penstock.views.store import ViewStore


@pytest.fixture(autouse=True)
def few_files(monkeypatch):
    monkeypatch.setattr(views_sources, "FILES", 4)


def bench(folder, learning=1):
    chain = Chain(4, 60)
    return Bench(chain, Files(chain.relations, folder / "files"), folder / "views", learning=learning)


def test_every_strategy_keeps_the_view_of_the_changed_files(tmp_path):
    found = bench(tmp_path).run(Case(0.1), turns=1)
    assert found["equal"]
    assert found["changed_rows"] == 4 * 6
    assert found["requests"]["batch"] == 12
    assert found["requests"]["conditional"] == 6
    assert set(found["ms"]) == {*views.SINGLE, "auto", "native"}
    assert found["best"] in views.SINGLE


def test_a_view_that_misses_a_change_is_not_equal(tmp_path, monkeypatch):
    at = bench(tmp_path)
    install = ViewStore.install

    def forgetful(self, rows, *given, **named):
        return install(self, rows.slice(0, len(rows) - 1), *given, **named)

    monkeypatch.setattr(ViewStore, "install", forgetful)
    assert not at.run(Case(0.1), turns=1)["equal"]


def test_files_hold_what_the_truth_says(tmp_path):
    chain = Chain(2, 40)
    system = Files(chain.relations, tmp_path / "files")
    for _ in range(3):
        chain.change(system, 0.2)
    for name, relation in chain.relations.items():
        held = pa.concat_tables([pq.read_table(p) for p in sorted((tmp_path / "files" / name).glob("*.parquet"))])
        assert fingerprint(held, held.column_names) == fingerprint(relation.rows, relation.rows.column_names)
        assert len(set(relation.rows["id"].to_pylist())) == 40
    truth = expected(chain.relations, chain.sql)
    native = system.native(chain.sql)
    assert fingerprint(truth, truth.column_names) == fingerprint(native, native.column_names)


def test_the_fingerprint_counts_rows_and_knows_no_order():
    rows = pa.table({"x": [3, 1, 1]})
    counted = pa.table({"x": [1, 3], "_count": [2, 1]})
    assert fingerprint(rows, ["x"]) == fingerprint(counted, ["x"])
    assert fingerprint(rows, ["x"]) != fingerprint(rows.slice(1), ["x"])


def test_random_queries_are_trees_whose_results_stay_near_the_size_of_a_relation():
    sizes = []
    for seed in range(5):
        case = Random(8, seed, rows=500)
        edges = case.edges()
        Relations((1.0,) * 8, tuple(Tie(a, b, 0.5) for a, b in edges))  # refuses what is not connected
        assert len(edges) == 7
        sizes.append(case.answer()[0])
    assert 50 < np.median(sizes) < 5_000


# -- pictures ---------------------------------------------------------------------------------------------------------

TINY = Size(postgres=300, parquet=300, fewer_postgres=200, fewer_parquet=200, queries=1, query_rows=400, turns=1)


@pytest.fixture(scope="module")
def url():
    with server() as found:
        yield found


@pytest.mark.long
def test_pictures_of_requests_and_views_with_cycles_are_made(url, tmp_path, monkeypatch):
    monkeypatch.setattr(
        views_figures, "CYCLES", {name: views_figures.CYCLES[name] for name in list(views_figures.CYCLES)[1:2]}
    )
    found = views_figures.regression(url, TINY)
    assert len(found["measured_and_fitted"]) == 15
    check(views_figures.Systems("postgres", url, tmp_path))


def test_pictures_of_six_relations_are_made_of_files_too(tmp_path):
    check_six(views_figures.Systems("parquet", "", tmp_path))


def check(systems):
    cycles = views_figures.cyclic(systems, TINY, small=True)
    assert set(cycles) == {"V2, a triangle and one more", "fifty matches", "fifty matches, slow rows"}
    for cell in cycles.values():
        assert cell["equal"]
        assert set(cell["estimates"]["estimated_and_measured"]) == {*views_figures.CYCLE_NAMES} - {"recompute"}
        assert cell["plans"]["equal"]
        assert [cell["plans"][name]["plans"] for name in ("batch", "conditional")] == [12, 4]
    check_six(systems)


def check_six(systems):
    six = views_figures.six_relations(systems, TINY, small=True)
    assert [cell["equal"] for cell in six.values()] == [True]
    assert six["10"]["requests"]["batch"] == 30


def test_plans_that_do_not_agree_are_seen(tmp_path, monkeypatch):
    at = bench(tmp_path)
    found = views_figures.plans(at, Case(0.1), turns=1)
    assert (found["equal"], found["batch"]["plans"], found["conditional"]["plans"]) == (True, 9, 2)
    true = views_figures.maintain
    few = iter(range(10**6))

    def forgetful(*given):
        done = true(*given)
        return done if next(few) else replace(done, rows=done.rows.slice(0, max(0, len(done.rows) - 1)))

    monkeypatch.setattr(views_figures, "maintain", forgetful)
    assert not views_figures.plans(at, Case(0.3), turns=1)["equal"]


def test_what_is_not_equal_in_any_figure_is_told(monkeypatch, capsys):
    report = Report("views", True, {}, {"machine": {}})
    monkeypatch.setattr(views, "measure", lambda size: report)
    for equal in (True, False):
        cell = {"updates": {"10": {"equal": equal, "ms": {"auto": 1.0}}}, "cyclic": [{"plans": {"equal": True}}]}
        monkeypatch.setattr(views_figures, "all_figures", lambda size, cell=cell: cell)
        assert views.main(["--small", "--all"]) == (0 if equal else 1)
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["equal"] is equal
    assert not views.all_equal({"x": [{"equal": True}, {"y": {"equal": False}}]})


def test_rows_are_slow_in_the_picture_of_delays(tmp_path, monkeypatch):
    cases = []
    monkeypatch.setattr(Bench, "run", lambda self, case, turns: cases.append(case) or {"equal": True})
    found = views_figures.strategies(views_figures.Systems("parquet", "", tmp_path), TINY, small=True)
    assert set(found) == {"updates", "sources", "ratios", "delays"}
    assert [(case.delay, case.each_row) for case in cases] == [(0.0, 0.0)] * 3 + [(0.0, 0.0001)]


def test_rows_of_an_answer_can_be_slow(monkeypatch):
    slept = []
    monkeypatch.setattr(views_sources.time, "sleep", slept.append)

    class Reader:
        def lookup(self, *_):
            return Answer(pa.table({"x": [1, 2, 3]}), 1)

        def position(self):
            return 7

    slow = views_sources.Delayed(Reader(), 0.5, 0.25)
    assert (slow.lookup(), slow.position())[1] == 7
    assert slept == [0.5 + 3 * 0.25, 0.5]


@pytest.mark.long
@pytest.mark.spark
def test_all_pictures_of_views_are_made_in_small(monkeypatch, capsys):
    monkeypatch.setattr("penstock.views.refresh.calibrate.calibrate", lambda *_: Costs())
    monkeypatch.setattr(views, "SMALL", TINY)
    assert views.main(["--small", "--all"]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["equal"]
    assert set(line["ratios"]) == {"recompute", "native", "batch", "batch_slow", "worst_pick", "right_deep"}
    wanted = {
        "shapes_by_relations",
        "group_sizes",
        "final_groups",
        "short_of_memory",
        "plan_search",
        "requests",
        "regression",
    }
    figures = {"updates", "sources", "delays", "ratios", "cyclic", "six_relations"}
    assert wanted | figures | {"tpch"} <= set(line["figures"])
    assert set(line["figures"]["parquet"]) == figures
    assert set(line["figures"]["tpch"]) == {f"{q}, {s}" for q in ("q3", "q5", "q9") for s in ("postgres", "parquet")}
