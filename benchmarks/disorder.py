"""The experiments of Li 2008 on windows, disorder and progress, simulated: work and state of operators, by shape.

The plots and machines of the thesis are not available, so sizes are scaled down and only shapes are compared. Every
cell also compares answers. `benchmarks.aggregates` measures Spark at scale.
"""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks import aggregates_figures, charts, command
from benchmarks.charts import Panel
from benchmarks.harness import Json, Report, say, table
from lab.disorder.joins import InputBufferedJoin, OrderAgnosticJoin, OutputBufferedJoin, Timed
from lab.disorder.merge import Meld, Merge
from lab.disorder.rows import buffered, by_window, paned
from lab.disorder.slack import SlackCount
from lab.disorder.windows import PunctuatedCount, Sliding, true_counts
from penstock.model.time import FOREVER

WAYS = {"partials by window": by_window, "rows": buffered, "panes": paned}
JOINS = {
    "as they come": OrderAgnosticJoin,
    "in order, pairs wait": OutputBufferedJoin,
    "in order, rows wait": InputBufferedJoin,
}
LENGTH, SLIDES = 400, (1, 2, 5, 10, 40, 100, 200, 400)  # rows
PANE_ROWS, PANES = (1, 2, 5, 10, 20), (1, 2, 5, 10, 20)
SLACKS = (0, 32, 64, 128, 256, 320)  # hundredths of a second
BANDS = tuple(range(1, 10))  # seconds
SKEWS = (0, 2, 4, 6, 8, 10)  # seconds
BAND = 2  # seconds: the windows of joins of unions
PACE = 10  # rows a second of each stream


# -- windows of rows: X1, X4 ------------------------------------------------------------------------------------------


def _touched(values: Sequence[int], length: int, slide: int) -> Json:
    found = {name: way(values, length, slide) for name, way in WAYS.items()}
    answers = [answer for answer, _ in found.values()]
    return {
        "equal": answers[0] == answers[1] == answers[2],
        **{name: counts.probes for name, (_, counts) in found.items()},
    }


def slides() -> Json:
    """X1: the greatest of the last 400 rows, every S rows: values touched."""
    values = _values(4 * LENGTH)
    return {str(slide): {"scan": len(values), **_touched(values, LENGTH, slide)} for slide in SLIDES}


def slides_shape(found: Json) -> bool:
    """The cost of a row grows with range / slide, and panes cost little more than a scan once a slide has some rows."""
    wide = [cell for slide, cell in found.items() if int(slide) >= 10]
    grows = all(
        found[str(a)][way] > found[str(b)][way] for a, b in pairwise(SLIDES) for way in ("partials by window", "rows")
    )
    return (
        grows
        and all(cell["panes"] <= 5 * cell["scan"] for cell in wide)
        and all(
            cell["panes"] < cell["partials by window"]
            for cell in found.values()
            if cell is not found["1"] and cell is not found[str(LENGTH)]
        )
    )


def panes() -> Json:
    """X4: panes beside partials by window, by rows per pane and panes per window. The input is long."""
    shown: Json = {}
    for rows in PANE_ROWS:
        for count in PANES:
            values = _values(400 * rows)
            cell = _touched(values, rows * count, rows)
            direct = cell["partials by window"]
            shown[f"{rows} rows, {count} panes"] = {"equal": cell["equal"], "ratio": round(cell["panes"] / direct, 3)}
    return shown


def panes_shape(found: Json) -> bool:
    """No gain with one row per pane or one pane per window, about 0.3 at 20 rows and 5 panes, less along both axes."""
    ratio = {tuple(map(int, (key.split()[0], key.split()[2]))): cell["ratio"] for key, cell in found.items()}
    edges = [ratio[rows, count] for rows in PANE_ROWS for count in PANES if rows == 1 or count == 1]
    falls = all(ratio[a, count] >= ratio[b, count] for a, b in pairwise(PANE_ROWS) for count in PANES)
    falls = falls and all(ratio[rows, a] >= ratio[rows, b] for rows in PANE_ROWS for a, b in pairwise(PANES))
    return min(edges) >= 1 and 0.2 <= ratio[20, 5] <= 0.4 and falls


def _values(count: int) -> list[int]:
    source = random.Random(3)
    return [source.randrange(1000) for _ in range(count)]


# -- slack: X2 --------------------------------------------------------------------------------------------------------


def band() -> Json:
    """X2: rows up to 3.2 s late, windows of 64 s every 6.4 s: the mean error of counts, by slack and by punctuation."""
    windows, source = Sliding(6400, 640), random.Random(5)
    rows = sorted((time + source.randrange(320), time) for time in range(0, 60_000, 20))
    times = [time for _, time in rows]
    truth = dict(true_counts(windows, times))
    told, least = PunctuatedCount(windows), _least_to_come(times)
    for time, bound in zip(times, least, strict=True):
        told.arrive(time)
        told.punctuate(bound)
    told.punctuate(FOREVER)
    shown: Json = {"punctuation": {"equal": told.answers == truth, "error_percent": _error(told.answers, truth)}}
    for slack in SLACKS:
        cell: Json = {"equal": True}
        for policy in ("consistent", "generous"):
            count = SlackCount(windows, slack, policy)
            for time in times:
                count.arrive(time)
            count.finish()
            cell[policy] = _error(count.answers, truth)
        shown[str(slack)] = cell
    return shown


def band_shape(found: Json) -> bool:
    """Punctuation: no error. Slack: less with more slack, none with enough; generous is never worse than consistent."""
    told, *guessed = found.values()
    falls = all(a[p] >= b[p] for a, b in pairwise(guessed) for p in ("consistent", "generous"))
    kind = all(cell["generous"] <= cell["consistent"] for cell in guessed)
    return told["error_percent"] == 0 and falls and kind and guessed[-1]["consistent"] == 0 < guessed[0]["generous"]


def _least_to_come(times: Sequence[int]) -> list[int]:
    """After each row: no later one is older than this."""
    least, found = FOREVER, []
    for time in reversed(times):
        found.append(least)
        least = min(least, time)
    return found[::-1]


def _error(answers: dict[int, int], truth: dict[int, int]) -> float:
    wrong = sum(abs(answers.get(window, 0) - rows) / rows for window, rows in truth.items())
    return round(100 * wrong / len(truth), 3)


# -- joins: X6, X7, X10, X11 ------------------------------------------------------------------------------------------


def orders() -> Json:
    """X6, X7: two ordered streams of flows, a band of n seconds: peak state, and how long a pair waits."""
    shown: Json = {}
    for seconds in BANDS:
        length = seconds * PACE
        cell, pairs = {}, []
        for name, kind in JOINS.items():
            join, waits, seen = kind((length, length)), [], 0
            for now in range(40 * PACE):
                for stream in (0, 1):
                    # Flows of a few rows per second in each direction, so that pairs outnumber rows.
                    join.arrive(stream, Timed(now, now // PACE % 3, now))
                    join.punctuate(stream, now)
                waits += [now - max(pair[0].time, pair[1].time) for pair in join.output[seen:]]
                seen = len(join.output)
            for stream in (0, 1):
                join.punctuate(stream, FOREVER)
            cell[name] = {"held": join.counts.peak_state, "median_wait": sorted(waits)[len(waits) // 2]}
            pairs.append(sorted(join.output))
        shown[str(seconds)] = {"equal": pairs[0] == pairs[1] == pairs[2], **cell}
    return shown


def orders_shape(found: Json) -> bool:
    """In order, waiting pairs need most state, growing fastest; without order state is least, and no pair waits."""
    free, pairs, rows = JOINS
    held = {name: [cell[name]["held"] for cell in found.values()] for name in JOINS}
    waits = [cell[free]["median_wait"] for cell in found.values()]
    least = all(a <= b < c for a, b, c in zip(held[free], held[rows], held[pairs], strict=True))
    return least and held[pairs][-1] / held[pairs][0] > held[rows][-1] / held[rows][0] and max(waits) == 0


def _held(late: Sequence[Sequence[int]], length: int) -> Json:
    """Peak rows of a join of two unions, each of inputs that many seconds late, in order and not."""
    free, ordered = OrderAgnosticJoin((length, length)), OrderAgnosticJoin((length, length))
    melds, merges, passed = [Meld(len(own)) for own in late], [Merge(len(own)) for own in late], [0, 0]
    peaks = {"in order": 0, "as they come": 0}

    def let_in(side: int) -> None:
        for time in merges[side].output[passed[side] :]:
            ordered.arrive(side, Timed(time, time % 7, time))
            ordered.punctuate(side, time)
        passed[side] = len(merges[side].output)

    end = 60 * PACE
    for now in range(end + max(map(max, late)) * PACE):
        for side, own in enumerate(late):
            for source, behind in enumerate(own):
                time = now - behind * PACE
                if not 0 <= time < end:
                    continue
                free.arrive(side, Timed(time, time % 7, time))
                if (bound := melds[side].punctuate(source, time)) is not None:
                    free.punctuate(side, bound)
                merges[side].arrive(source, time)
                let_in(side)
        peaks["in order"] = max(peaks["in order"], ordered.counts.state + sum(m.counts.state for m in merges))
        peaks["as they come"] = max(peaks["as they come"], free.counts.state)
    for side, own in enumerate(late):
        for source in range(len(own)):
            merges[side].punctuate(source, FOREVER)
        let_in(side)
    return {"equal": sorted(free.output) == sorted(ordered.output), **peaks}


def both_unions() -> Json:
    """X10: a join of two unions, one input of each late: stored rows."""
    return {str(skew): _held(((0, skew), (0, skew)), BAND * PACE) for skew in SKEWS}


def both_unions_shape(found: Json) -> bool:
    """No gain: what waited before the join now waits in it, within a few rows per hundred."""
    return all(0.95 <= cell["as they come"] / cell["in order"] <= 1.05 for cell in found.values())


def one_union() -> Json:
    """X11: a stream joined with a union of which one input is late: stored rows."""
    return {str(skew): _held(((0,), (0, skew)), BAND * PACE) for skew in SKEWS}


def one_union_shape(found: Json) -> bool:
    """The stream that is on time expires the union's rows, which in order would still wait before the join.

    That is a gain only where an input is later than the window: until then the join would store those rows anyway.
    """
    return all(
        cell["as they come"] < cell["in order"] if int(skew) > BAND else cell["as they come"] == cell["in order"]
        for skew, cell in found.items()
    )


# -- all of them ------------------------------------------------------------------------------------------------------

_SIZES = aggregates_figures.Sizes()


def _slack_shape(found: Json) -> bool:
    """Right from a whole block on and only there, and then later than punctuation."""
    told = found["punctuation"]
    guessed = {int(name): cell for name, cell in found.items() if name != "punctuation"}
    right = all((cell["wrong_percent"] == 0) == (slack >= _SIZES.block) for slack, cell in guessed.items())
    later = all(cell["seconds"] > told["seconds"] for slack, cell in guessed.items() if slack >= _SIZES.block)
    return right and later and told["wrong_percent"] == 0


def _skew_shape(found: Json) -> bool:
    tumbling = [cell for name, cell in found.items() if name.startswith("tumbling")]
    gain = [cell["eager"] / cell["adapt"] for cell in tumbling]
    return gain[-1] > gain[0] and all(cell["beside_better"] <= 1.1 for cell in found.values())


def _flush_shape(found: Json) -> bool:
    """Equal with few groups; with many and enough slots, twice the rate without order; in order more slots hurt."""
    few, many = (str(_SIZES.groups[place]) for place in (0, -1))
    sizes = list(aggregates_figures.SIZES)
    alike = [cell for name, cell in found.items() if name.endswith(f", {few}")]
    large = [found[f"{size}, {many}"] for size in sizes[1:]]
    return (
        all(cell["lazy"] <= 1.1 * cell["iop"] for cell in alike)
        and all(cell["lazy"] >= 1.9 * cell["iop"] for cell in large)
        and large[1]["iop"] <= large[0]["iop"]
    )


def _unions_shape(found: Json) -> bool:
    """In order, all rows of the time that one input is late are stored; without order, at most the open windows."""
    length, slide, pace = 600, 100, 10
    return all(
        cell["merge"] >= int(skew) * pace and cell["meld"] <= (length + int(skew) * pace) / slide + 1
        for skew, cell in found.items()
    )


@dataclass(frozen=True)
class Experiment:
    """One or more figures of the thesis: how to repeat them, and the expected shape."""

    figure: str
    run: Callable[[], Json]
    shape: Callable[[Json], bool]
    expected: str


EXPERIMENTS = {
    "X1": Experiment("6-10", slides, slides_shape, "cost grows with range / slide; panes stay near the scan"),
    "X2": Experiment("6-11", band, band_shape, "error falls with slack; none with punctuation"),
    "X3": Experiment(
        "6-12", lambda: aggregates_figures.slack(_SIZES), _slack_shape, "right only from a whole block on"
    ),
    "X4": Experiment("6-15", panes, panes_shape, "0.3 at 20 rows a pane and 5 panes a window"),
    "X5": Experiment("6-19", lambda: aggregates_figures.skew(_SIZES), _skew_shape, "at most 1.1 of the better way"),
    "X6, X7": Experiment("7-6, 7-7", orders, orders_shape, "pairs wait > rows wait >= no order"),
    "X8": Experiment(
        "8-7", lambda: aggregates_figures.flush(_SIZES), _flush_shape, "alike with few groups, then without order"
    ),
    "X9, X12": Experiment(
        "8-8, 8-11", lambda: aggregates_figures.unions(_SIZES), _unions_shape, "in order all rows, else open windows"
    ),
    "X10": Experiment("8-9", both_unions, both_unions_shape, "the same: no gain"),
    "X11": Experiment("8-10", one_union, one_union_shape, "less without order once later than the window"),
}


def measure(options: Namespace) -> Report:
    found: Json = {}
    for name, experiment in EXPERIMENTS.items():
        cells = experiment.run()
        equal = all(cell["equal"] for cell in cells.values())
        found[name] = {"equal": equal, "shape": experiment.shape(cells), "cells": cells}
        say(f"{name}: {'as expected' if found[name]['shape'] else 'NOT as expected'} ({experiment.expected})")
    if options.all:
        charts.write("disorder", found)
        draw(found)
    return Report("disorder", all(f["equal"] for f in found.values()), {}, found)


def describe(report: Report) -> str:
    rows = [
        (name, e.figure, "simulated", e.expected, "yes" if report.figures[name]["shape"] else "no")
        for name, e in EXPERIMENTS.items()
    ]
    return table(("experiment", "figure", "how", "expected shape", "found"), rows)


def draw(found: Json) -> None:
    def series(name: str, *ways: str) -> tuple[list[int], dict[str, list[float]]]:
        cells = {int(at): cell for at, cell in found[name]["cells"].items() if at.isdigit()}
        return list(cells), {way: [cell[way] for cell in cells.values()] for way in ways}

    at, lines = series("X1", "scan", *WAYS)
    charts.draw("disorder-slides", "The greatest of the last 400 rows", "simulated",
                [Panel("Values touched", "slide, rows", "values", at, lines, log="xy")])  # fmt: skip
    cells = found["X4"]["cells"]
    lines = {f"{count} panes": [cells[f"{rows} rows, {count} panes"]["ratio"] for rows in PANE_ROWS] for count in PANES}
    charts.draw(
        "disorder-panes",
        "Panes beside partials by window",
        "simulated",
        [Panel("Values touched", "rows in a pane", "of those with partials by window", PANE_ROWS, lines)],
    )
    at, lines = series("X2", "consistent", "generous")
    lines["punctuation"] = [found["X2"]["cells"]["punctuation"]["error_percent"]] * len(at)
    charts.draw("disorder-band", "Rows up to 3.2 s late", "simulated",
                [Panel("Mean error", "slack, hundredths of a second", "% of a count", at, lines)])  # fmt: skip
    at, joins = series("X6, X7", *JOINS)
    panels = [
        Panel(title, "band, seconds", unit, at, {name: [cell[what] for cell in cells] for name, cells in joins.items()})
        for title, unit,
        what in (("Most held", "rows and pairs", "held"), ("Wait of a pair", "tenths of a second", "median_wait"))
    ]  # fmt: skip
    charts.draw("disorder-joins", "A join with and without order", "simulated", panels)
    panels = []
    for name, title in (("X10", "Both sides are unions"), ("X11", "One side is a union")):
        at, lines = series(name, "in order", "as they come")
        panels.append(Panel(title, "seconds that an input is behind", "most rows held", at, lines))
    charts.draw("disorder-unions", "Joins of unions", "simulated", panels)


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run(
        "disorder",
        __doc__,
        measure,
        everything="also draw the charts",
        sizes={},
        describe=describe,
        arguments=arguments,
    )


if __name__ == "__main__":
    raise SystemExit(main())
