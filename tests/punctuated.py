"""Random punctuated streams: rows in any order, and punctuations that no later row breaks.

The rows are drawn first, then an arrival order and cuts into steps; punctuations are placed afterwards, each at most as
far as the rows still to come allow, so that the stream is grammatical by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

from penstock.model import Column, Punctuation, Range, Stream
from penstock.reference import Row

BY_COLUMN = Stream(
    "a", (Column("ts", "bigint"), Column("k", "bigint"), Column("v", "bigint"), Column("p", "bigint")), "ts", None,
    punctuation="p"
)  # fmt: skip
BY_PATTERN = Stream(
    "a", (Column("ts", "bigint"), Column("k", "bigint"), Column("v", "bigint")), "ts", None,
    patterns=(Column("ts", "bigint"), Column("k", "bigint"), Column("v_from", "bigint"), Column("v_to", "bigint")),
)  # fmt: skip


@dataclass(frozen=True)
class Punctuated:
    """What each step brings: rows in order of arrival, and punctuations that hold from the end of the step on."""

    batches: tuple[tuple[Row, ...], ...]
    said: tuple[tuple[Punctuation, ...], ...]

    def inline(self) -> list[list[Row]]:
        """The steps with linear punctuations as rows of the stream itself, in the midst of the data."""
        steps = []
        for rows, said in zip(self.batches, self.said, strict=True):
            marks = [{"ts": None, "k": None, "v": None, "p": p.until} for p in said]
            data = [{**row, "p": None} for row in rows]
            steps.append([*marks[:1], *data, *marks[1:]])
        return steps


@st.composite
def grammatical(draw: st.DrawFn, *, groups: bool = False) -> Punctuated:
    """Rows in any arrival order with punctuations that later rows keep; with `groups` also those with patterns."""
    rows = draw(st.lists(st.builds(_row, st.integers(0, 20), st.integers(0, 3), st.integers(0, 5)), max_size=14))
    rows = draw(st.permutations(rows))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    edges = [0, *cuts, len(rows)]
    batches = tuple(tuple(rows[a:b]) for a, b in pairwise(edges))
    said = []
    for end in edges[1:]:
        step = []
        for _ in range(draw(st.integers(0, 2))):
            patterns = draw(_patterns()) if groups and draw(st.booleans()) else ()
            own = [r for r in rows[end:] if Punctuation(None, patterns).covers(r)]
            least = min((r["ts"] for r in own), default=25)
            step.append(Punctuation(least - draw(st.sampled_from((0, 0, 1, 5))), patterns))
        said.append(tuple(step))
    return Punctuated(batches, tuple(said))


def _row(ts: int, k: int, v: int) -> Row:
    return {"ts": ts, "k": k, "v": v}


@st.composite
def _patterns(draw: st.DrawFn) -> tuple[tuple[str, int | Range], ...]:
    key = (("k", draw(st.integers(0, 3))),) if draw(st.booleans()) else ()
    low = draw(st.one_of(st.none(), st.integers(0, 4)))
    high = draw(st.one_of(st.none(), st.integers((low or 0) + 1, 6)))
    ends = (("v", Range(low, high)),) if (low, high) != (None, None) and draw(st.booleans()) else ()
    return (*key, *ends) or (("k", 0),)
