"""Figures of window aggregates: plans by range, numbers of queries, stored results, disorder, unions and skew.

Ranges, plans, numbers and the size of results are measured on Spark, state of skewed groups with the kernels alone.
Disorder, unions, skewed groups and flushes are simulated with the operators of Li 2008, chapters 6 and 8; each cell is
also checked, so that what is compared gives the same answers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import charts
from benchmarks.aggregates import Asked, Case, Input, Peers, job, mix, of_side
from benchmarks.charts import Panel
from benchmarks.harness import Json, say
from lab.adaptwid.groups import SMALL, run, skewed_rows
from lab.adaptwid.operator import Row
from lab.disorder.merge import Meld, Merge
from lab.disorder.ring import Load, sustained_rate
from lab.disorder.slack import SlackCount, wrong_share
from lab.disorder.windows import PunctuatedCount, Sliding, true_counts
from penstock.kernels.aggregate.close import close
from penstock.kernels.aggregate.forms import are_rows, as_partials, buckets_of, expire_forms, keep_rows
from penstock.model import Aggregate, Aggregation, Expression, Item, Ref
from penstock.model import windows as model
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from penstock.state.buckets import BUCKETS

# Over one query the panes of 'paned' are those of 'wid', as wide as its slide; over several, each has its own there.
ONE = ("paned", "differential", "buffered")
PLANS = ("paned", "wid", "differential", "buffered", "adapt")
HELD = {"adapt": "either, by bucket", "paned": "partials only", "buffered": "rows only"}
POLICIES = {"adapt": "AdaptWID", "eager": "partials only", "lazy": "rows only"}
FLUSHES = {"iop": "in order", "lazy": "when in the way", "slow": "one every few rows"}
SIZES = {"half as many slots": 0.5, "as many": 1.0, "twice as many": 2.0}  # as groups
SWEEP = Input(rows=100_000, files=6, seconds=20)


@dataclass(frozen=True)
class Sizes:
    """What is run; the rest of the pictures is small."""

    ranges: Input = SWEEP
    lengths: tuple[int, ...] = (1, 2, 5, 10, 60, 600)  # seconds, with a slide of one
    together: int = 8  # queries with different windows, under each plan
    stored: int = 64  # queries of which every result is stored
    held: int = 40_000  # rows of a data set with skewed groups that the engine's own kernels hold
    capped: int = 60  # seconds: with longer windows Spark gets one file and a tail
    numbers: Input = SWEEP
    counts: tuple[int, ...] = (1, 4, 16, 64, 256)
    isolated: int = 64  # queries at most
    native: int = 4
    tail: int = 500
    block: int = 490  # seconds
    slacks: tuple[int, ...] = (0, 55, 109, 218, 327, 434, 491, 600)
    skews: tuple[int, ...] = (0, 5, 10, 20, 40)  # seconds
    rows: int = 12_000  # of a data set with skewed groups
    groups: tuple[int, ...] = (66, 130, 260, 520)  # of a flush; thousands in the thesis
    step: float = 25.0


def all_figures(peers: Peers, case: Case, cores: int, sizes: Sizes | None = None, folder: Path | None = None) -> Json:
    sizes = sizes or Sizes()
    found = {
        "ranges": ranges(peers, cores, sizes),
        "plans": plans(peers, cores, sizes),
        "numbers": numbers(peers, cores, sizes, case.least),
        "stored": stored(peers, cores, sizes),
        "held": held(sizes),
        "slack": slack(sizes),
        "unions": unions(sizes),
        "skew": skew(sizes),
        "flush": flush(sizes),
    }
    charts.write("aggregates", found, folder)
    draw(found, folder)
    return found


# -- measured ---------------------------------------------------------------------------------------------------------


def _cell(sides: Json) -> Json:
    return {"equal": all(side["equal"] for side in sides.values()), **sides}


def _run(peers: Peers, data: Input, side: str, queries: Sequence[Asked], cores: int, **changes: object) -> Json:
    found = peers(side)({**job(data, side, queries, cores), **changes})
    say(f"  {side} {' '.join(map(str, changes.values()))}: {found['says']}")
    return of_side([found], data)


def ranges(peers: Peers, cores: int, sizes: Sizes) -> Json:
    """Each plan over windows of one second up to the longest, beside Spark's. HAVING forces assembly in the step."""
    shown: Json = {}
    for length in sizes.lengths:
        say(f"{length} s / 1 s")
        asked = [Asked(length, 1, 2)]
        cell = {plan: _run(peers, sizes.ranges, "penstock", asked, cores, options={"plan": plan}) for plan in ONE}
        few = replace(sizes.ranges, files=2) if length <= sizes.capped else _capped(sizes.ranges, sizes.tail)
        cell["native"] = _run(peers, few, "native", asked, cores)
        shown[str(length)] = _cell(cell)
    return shown


def plans(peers: Peers, cores: int, sizes: Sizes) -> Json:
    """Queries with different windows under each plan, with HAVING: shared panes, panes of their own, rows."""
    queries = mix(sizes.together, 2)
    say(f"{sizes.together} queries under each plan")
    return {
        plan: _cell({"penstock": _run(peers, sizes.numbers, "penstock", queries, cores, options={"plan": plan})})
        for plan in (*PLANS, "auto")
    }


def stored(peers: Peers, cores: int, sizes: Sizes) -> Json:
    """The results of many queries: stored as panes and combined windows, and with a row per result."""
    queries = mix(sizes.stored, 1)
    say(f"results of {sizes.stored} queries")
    ways = {"panes and runs": False, "every row": True}
    return {
        name: _cell({"penstock": _run(peers, sizes.numbers, "penstock", queries, cores, options={"rows": rows})})
        for name, rows in ways.items()
    }


def held(sizes: Sizes) -> Json:
    """Peak bytes of the kernels' state for each data set (those of Fig. 6-19): partials, rows, or either per bucket."""
    shown: Json = {}
    for kind, slide in (("tumbling", 1_000), ("sliding", 100)):
        for name in SMALL:
            rows = skewed_rows(name, sizes.held, 1_000)
            found = {plan: _hold(rows, model.Sliding(1_000, slide), plan) for plan in HELD}
            answers = [answer for answer, _ in found.values()]
            peaks = {plan: peak for plan, (_, peak) in found.items()}
            shown[f"{kind}, {name}"] = {
                "equal": answers[0] == answers[1] == answers[2] and len(answers[0]) > 0,
                **peaks,
                "beside_better": round(peaks["adapt"] / min(peaks["paned"], peaks["buffered"]), 3),
            }
    return shown


def _hold(rows: Sequence[Row], window: model.Sliding, wanted: str) -> tuple[list[tuple[int, ...]], int]:
    """All counts and sums, and the peak bytes after a step; a step is a tenth of a window, every eighth one merges."""
    key, value = (Expression((Ref(0, n),), Ref(0, n), total=True) for n in ("k", "v"))
    asked = Aggregation(window, (Item(None, key),), (Aggregate("count", None), Aggregate("sum", value)), None)
    (plan,) = plan_aggregates({0: asked}, {value: "bigint"}, wanted=wanted)
    state: list[pa.Table] = []
    found: list[tuple[int, ...]] = []
    peak, progress, before = 0, NEVER, None
    for number in range(rows[-1].time // 100 + 2):
        fresh = [row for row in rows if row.time // 100 == number]
        reached = 100 * number if fresh else FOREVER
        if fresh:
            keys = np.array([row.key for row in fresh], dtype=np.int64)
            table = pa.table({
                "_key": (keys + 1) * -7_046_029_254_386_353_131, "g0": keys, "_ts": [row.time for row in fresh],
                "a0": [row.value for row in fresh]
            })  # fmt: skip
            added = keep_rows(plan, table, before=before).tables
            before = np.logical_or.reduce(
                [buckets_of(t) for t in added if are_rows(t)] or [np.zeros(BUCKETS, dtype=np.bool_)]
            )
            state += added
        whole = [as_partials(plan, table) for table in state]
        for closed in close(plan, whole, progress, reached):
            found += zip(*(closed.table.column(c).to_pylist() for c in ("g0", "window_end", "a0", "a1")), strict=True)
        progress = reached
        if number % 8 == 7:
            state = expire_forms(plan, state, progress)
        peak = max(peak, sum(table.nbytes for table in state))
    return sorted(found), peak


def numbers(peers: Peers, cores: int, sizes: Sizes, least: int) -> Json:
    """K queries with HAVING that share panes, K that share nothing, and as many native ones as the machine can run."""
    shown: Json = {}
    for count in sizes.counts:
        say(f"{count} queries with HAVING")
        queries = mix(count, least)
        cell = {"shared": _run(peers, sizes.numbers, "penstock", queries, cores)}
        if count <= sizes.isolated:
            options = {"strategy": "isolated"}
            cell["isolated"] = _run(peers, sizes.numbers, "penstock", queries, cores, options=options)
        if count <= sizes.native:
            cell["native"] = _run(peers, _capped(sizes.numbers, sizes.tail), "native", queries, cores)
        shown[str(count)] = _cell(cell)
    return shown


def _capped(data: Input, tail: int) -> Input:
    return replace(data, files=1, tail=tail)


# -- simulated --------------------------------------------------------------------------------------------------------


def slack(sizes: Sizes) -> Json:
    """Blocks of time shuffled inside, a row per second: cost and error of slack, beside punctuation (Fig. 6-12)."""
    windows, source = Sliding(600, 60), random.Random(7)
    times: list[int] = []
    for block in range(12):
        inside = list(range(block * sizes.block, (block + 1) * sizes.block))
        source.shuffle(inside)
        times += inside
    truth = dict(true_counts(windows, times))
    whole = {window: number for number, time in enumerate(times) for window in windows.wids(time)}  # its last row

    told, waits = PunctuatedCount(windows), []
    for number, time in enumerate(times):
        told.arrive(time)
        if (number + 1) % sizes.block == 0:
            waits += [number - whole[window] for window in told.punctuate(number + 1)]
    told.punctuate(FOREVER)
    wrong = 100 * wrong_share(told.answers, truth)
    shown: Json = {"punctuation": {"equal": wrong == 0, "wrong_percent": wrong, "seconds": _mean(waits)}}
    for length in sizes.slacks:
        count, waits = SlackCount(windows, length), []
        for number, time in enumerate(times):
            waits += [number - whole[window] for window in count.arrive(time)]
        count.finish()
        wrong = 100 * wrong_share(count.answers, truth)
        # A slack as long as a block must be right; a shorter one need not be.
        shown[str(length)] = {
            "equal": wrong == 0 or length < sizes.block,
            "wrong_percent": round(wrong, 2),
            "seconds": _mean(waits),
        }
    return shown


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / max(1, len(values)), 1)


def unions(sizes: Sizes) -> Json:
    """Two inputs of ten rows per second, one late: the most rows and counts stored, in order and not (8-8, 8-11)."""
    windows, pace = Sliding(600, 100), 10
    shown: Json = {}
    for skewed in sizes.skews:
        merge, meld = Merge(2), Meld(2)
        ordered, open_count = PunctuatedCount(windows), PunctuatedCount(windows)
        passed, peaks = 0, {"merge": 0, "meld": 0}
        rows = [(now, source, now - source * skewed * pace) for now in range(200 * pace) for source in (0, 1)]
        for _, source, time in rows:
            if time < 0:
                continue
            merge.arrive(source, time)
            for row in merge.output[passed:]:
                ordered.punctuate(row)
                ordered.arrive(row)
            passed = len(merge.output)
            open_count.arrive(time)
            if (bound := meld.punctuate(source, time)) is not None:
                open_count.punctuate(bound)
            peaks["merge"] = max(peaks["merge"], merge.counts.state + ordered.counts.state)
            peaks["meld"] = max(peaks["meld"], open_count.counts.state)
        for source in (0, 1):
            merge.punctuate(source, FOREVER)
        for row in merge.output[passed:]:
            ordered.arrive(row)
        for count in (ordered, open_count):
            count.punctuate(FOREVER)
        truth = dict(true_counts(windows, [time for *_, time in rows if time >= 0]))
        shown[str(skewed)] = {"equal": ordered.answers == open_count.answers == truth, **peaks}
    return shown


def skew(sizes: Sizes) -> Json:
    """Peak state, in sizes of a row, on the five data sets (Fig. 6-19): a partial is as large as two rows if windows
    tumble, and as one if they slide, ten to a range."""
    shown: Json = {}
    for kind, slide, size in (("tumbling", 1_000, 2.0), ("sliding", 100, 1.0)):
        for name in SMALL:
            rows = skewed_rows(name, sizes.rows, 1_000)
            found = {policy: run(rows, model.Sliding(1_000, slide), policy, size) for policy in POLICIES}
            results = [sorted(operator.results) for operator in found.values()]
            peaks = {policy: operator.peak for policy, operator in found.items()}
            shown[f"{kind}, {name}"] = {
                "equal": results[0] == results[1] == results[2],
                **peaks,
                "beside_better": round(peaks["adapt"] / min(peaks["eager"], peaks["lazy"]), 3),
                "switches": found["adapt"].switches,
            }
    return shown


def flush(sizes: Sizes) -> Json:
    """Rows per second before the first is lost, by groups, slots and policy (Fig. 8-7); tests check the totals."""
    shown: Json = {}
    for name, share in SIZES.items():
        for groups in sizes.groups:
            rates = {
                policy: sustained_rate(round(groups * share), policy, Load(groups), step=sizes.step)
                for policy in FLUSHES
            }
            shown[f"{name}, {groups}"] = {"equal": True, **rates}
    return shown


# -- the charts -------------------------------------------------------------------------------------------------------


def draw(found: Json, folder: Path | None = None) -> None:
    draw_measured(found, folder)
    slacks = [int(name) for name in found["slack"] if name != "punctuation"]
    panels = []
    for title, unit, measure in (
        ("Wrong answers", "% of windows", "wrong_percent"),
        ("Delay", "seconds", "seconds"),
    ):
        series = {
            "slack": [found["slack"][str(length)][measure] for length in slacks],
            "punctuation": [found["slack"]["punctuation"][measure]] * len(slacks),
        }
        panels.append(Panel(title, "slack, seconds", unit, slacks, series))
    charts.draw("aggregates-slack", "Blocks shuffled inside: guessing and being told", "simulated", panels, folder)
    skews = [int(name) for name in found["unions"]]
    series = {
        name: [found["unions"][str(s)][side] for s in skews]
        for name, side in {"Merge, in order": "merge", "Meld": "meld"}.items()
    }
    panel = Panel("Most held", "seconds that one input is behind", "rows and counts", skews, series)
    charts.draw("aggregates-unions", "Union of two inputs, one behind the other", "simulated", [panel], folder)
    panels = [
        Panel(
            kind.capitalize(),
            "data set",
            "most held, sizes of a row",
            list(SMALL),
            {title: [found["skew"][f"{kind}, {name}"][policy] for name in SMALL] for policy, title in POLICIES.items()},
            "bars",
        )
        for kind in ("tumbling", "sliding")
    ]
    charts.draw("aggregates-skew", "Skewed groups: partials, rows, or either", "simulated", panels, folder)
    panels = [
        Panel(kind.capitalize(), "data set", "most bytes held", list(SMALL),
              {title: [found["held"][f"{kind}, {name}"][plan] for name in SMALL] for plan, title in HELD.items()},
              "bars")
        for kind in ("tumbling", "sliding")
    ]  # fmt: skip
    charts.draw("aggregates-held", "Skewed groups in the engine: partials, rows, or either", "measured", panels, folder)
    groups = list(dict.fromkeys(int(name.split(", ")[1]) for name in found["flush"]))
    panels = [
        Panel(
            f"Slots: {size}",
            "groups",
            "rows per second",
            groups,
            {
                title: [found["flush"][f"{size}, {count}"][policy] for count in groups]
                for policy, title in FLUSHES.items()
            },
        )
        for size in SIZES
    ]
    charts.draw("aggregates-flush", "Rate before rows are lost, by flush", "simulated", panels, folder, level=True)


def draw_measured(found: Json, folder: Path | None = None) -> None:
    for picture, title in (("plans", "Eight queries under each plan"), ("stored", "Results of many queries")):
        ways = list(found[picture])
        measures = (
            [("Rate", "input rows per second", "rows_per_second"), ("State at the end", "bytes", "state_bytes")]
            if picture == "plans"
            else [("Stored rows", "rows", "result_rows"), ("Stored bytes", "bytes", "result_bytes")]
        )
        panels = [
            Panel(
                name, "", unit, ways, {"measured": [found[picture][way]["penstock"][measure] for way in ways]}, "bars"
            )
            for name, unit, measure in measures
        ]
        charts.draw(f"aggregates-{picture}", title, "measured", panels, folder)
    for picture, title, axis, sides in (
        ("ranges", "Windows of a slide of one second", "range / slide",
         {**{plan: plan for plan in ONE}, "Spark's window()": "native"}),
        ("numbers", "Many aggregates over one stream", "queries",
         {"shared": "shared", "isolated": "isolated", "one Spark query each": "native"}),
    ):  # fmt: skip
        at = [int(name) for name in found[picture]]
        panels = []
        for name, unit, measure in (
            ("Rate", "input rows per second", "rows_per_second"),
            ("State at the end", "rows", "state_rows"),
        ):
            series = {
                label: [found[picture][str(x)].get(side, {}).get(measure) for x in at] for label, side in sides.items()
            }
            panels.append(Panel(name, axis, unit, at, series, log="xy"))
        charts.draw(f"aggregates-{picture}", title, "measured", panels, folder)
