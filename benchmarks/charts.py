"""Charts of what was measured or simulated: panels of lines or bars as SVG, with their numbers beside them as JSON.

Colours are distinct for all kinds of colour vision (Okabe and Ito), and every series also has its own mark or hatch.
The title of a chart says whether its numbers were measured or simulated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from benchmarks import harness
from benchmarks.harness import Json, say

FOLDER = harness.ROOT / "docs" / "figures"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = "osD^vPX"
STROKES = ("-", "--", "-.", ":", "-", "--", "-.")
HATCHES = ("", "//", "..", "\\\\", "xx", "++", "oo")
MOST_TICKS = 12
MOST_LETTERS = 32  # of all names below an axis, before they are rotated
Value = float | None  # None where a series has no value


@dataclass(frozen=True)
class Panel:
    """One pair of axes: `series` has a value for each of `at`. Labels name units; `log` names the axes, as in 'xy'."""

    title: str
    x: str
    y: str
    at: Sequence[float | str]
    series: Mapping[str, Sequence[Value]]
    kind: Literal["lines", "bars"] = "lines"
    log: str = ""


def draw(
    name: str,
    title: str,
    how: Literal["measured", "simulated"],
    panels: Sequence[Panel],
    folder: Path | None = None,
    *,
    level: bool = False,
    note: str = "",
) -> Path:
    """Write `<name>.svg`, reproducibly; `level` shares the vertical axis, `note` is a text above the common legend."""
    style = {"svg.hashsalt": "penstock", "svg.fonttype": "none", "hatch.linewidth": 0.6, "font.size": 9}
    with mpl.rc_context(style):
        figure = Figure(figsize=(max(6.0, 3.5 * len(panels)), 3.9), layout="constrained")
        figure.suptitle(f"{title} ({how})", fontsize=11)
        found = figure.subplots(1, len(panels), squeeze=False, sharey=level)[0]
        for axes, panel in zip(found, panels, strict=True):
            _fill(axes, panel, panels if level else [panel])
        if level:
            for axes in found[1:]:
                axes.set_ylabel("")
        _legends(figure, found, panels, note)
        target = folder or FOLDER
        target.mkdir(parents=True, exist_ok=True)
        path = target / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
    say(f"wrote {path}")
    return path


def write(name: str, found: Json, folder: Path | None = None) -> Path:
    """Store the numbers of charts as `<name>.json`."""
    target = folder or FOLDER
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{name}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    say(f"wrote {path}")
    return path


def _fill(axes: Any, panel: Panel, alike: Sequence[Panel]) -> None:
    places = [n if isinstance(value, str) or panel.kind == "bars" else value for n, value in enumerate(panel.at)]
    if "x" in panel.log:
        axes.set_xscale("log")
    if panel.kind == "bars":
        _bars(axes, panel)
    else:
        for number, (name, values) in enumerate(panel.series.items()):
            there = [(x, y) for x, y in zip(places, values, strict=True) if y is not None]
            axes.plot(
                [x for x, _ in there], [y for _, y in there], STROKES[number] + MARKS[number], color=COLOURS[number],
                label=name, markersize=5, linewidth=1.5, markevery=max(1, len(there) // 10),
            )  # fmt: skip
    if len(places) <= MOST_TICKS:
        axes.xaxis.set_minor_locator(NullLocator())
        names = [value if isinstance(value, str) else f"{value:,g}" for value in panel.at]
        axes.set_xticks(places, names)
        if len("".join(names)) > MOST_LETTERS:
            axes.tick_params(axis="x", labelrotation=30)
            for label in axes.get_xticklabels():
                label.set_horizontalalignment("right")
    _scale(axes, "y" in panel.log, [v for p in alike for values in p.series.values() for v in values if v is not None])
    axes.set_title(panel.title, fontsize=10)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _scale(axes: Any, logarithmic: bool, shown: Sequence[float]) -> None:
    """A vertical axis from zero or, if logarithmic, where bars have no natural base, from a power of ten."""
    least, most = min(shown, default=0), max(shown, default=1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    if logarithmic and least > 0:
        axes.set_yscale("log")
        axes.set_ylim(10 ** floor(log10(least) - 0.05), 1.3 * most)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        few = most < 50 * least
        axes.yaxis.set_minor_formatter((lambda value, _: f"{value:,.10g}") if few else NullFormatter())
    elif least >= 0:
        axes.set_ylim(0, 1.05 * most or 1)
    else:
        axes.axhline(0, color="black", linewidth=0.8)


def _bars(axes: Any, panel: Panel) -> None:
    width = 0.8 / len(panel.series)
    for number, (name, values) in enumerate(panel.series.items()):
        middle = (number - (len(panel.series) - 1) / 2) * width
        there = [(n + middle, v) for n, v in enumerate(values) if v is not None]
        axes.bar(
            [x for x, _ in there], [v for _, v in there], width * 0.94, color=COLOURS[number], hatch=HATCHES[number],
            edgecolor="white", linewidth=0.5, label=name,
        )  # fmt: skip


def _legends(figure: Any, found: Sequence[Any], panels: Sequence[Panel], note: str) -> None:
    """One legend below if all panels show the same series, else one below each; none for a single series."""
    if all(list(panel.series) == list(panels[0].series) for panel in panels):
        if len(panels[0].series) > 1:
            handles, names = found[0].get_legend_handles_labels()
            columns = min(len(names), 3 if len(panels) == 1 else 4)
            figure.legend(
                handles, names, loc="outside lower center", ncols=columns, frameon=False, title=note or None,
                title_fontsize=8
            )  # fmt: skip
        return
    for axes, panel in zip(found, panels, strict=True):
        if len(panel.series) > 1:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False, fontsize=8)
