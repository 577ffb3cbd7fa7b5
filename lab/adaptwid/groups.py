"""Streams of skewed groups: many with a single row, some with about fifteen, few with about three hundred.

After Li 2008, Table 6-2, which gives shares of rows and of groups but not the times of rows. Here the rows of a group
lie within one window's length, starting at any time, so that the sizes are those of a group in a window.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from lab.adaptwid.operator import AdaptWid, Row
from penstock.model.time import FOREVER
from penstock.model.windows import Sliding

SMALL = {"DS1": 0.01, "DS2": 0.03, "DS3": 0.05, "DS4": 0.07, "DS5": 0.09}  # of all rows
MEDIUM = 0.20
SIZES = ((1, 1), (5, 25), (100, 500))  # rows of a small, a medium and a large group


def skewed_rows(name: str, rows: int, length: int, spans: int = 6, seed: int = 1) -> list[Row]:
    """About `rows` rows, by time, over `spans` intervals of `length`; keys ascend with the size of groups."""
    draw = random.Random(seed)  # noqa: S311  (a simulation)
    shares = (SMALL[name], MEDIUM, 1 - SMALL[name] - MEDIUM)
    found: list[Row] = []
    key = 0
    for share, (least, most) in zip(shares, SIZES, strict=True):
        left = round(rows * share)
        while left > 0:
            size = draw.randint(least, most)
            begin = draw.randrange((spans - 1) * length)
            found += [Row(begin + draw.randrange(length), key, draw.randrange(1500)) for _ in range(size)]
            key, left = key + 1, left - size
    return sorted(found, key=lambda row: row.time)


def run(
    rows: Sequence[Row], windows: Sliding, policy: str, partial_size: float = 1.0, row_size: float = 1.0
) -> AdaptWid:
    """Rows in order of time, with a punctuation at each slide that they pass, and at the end."""
    operator = AdaptWid(windows, partial_size, row_size, policy)
    for row in rows:
        operator.punctuate(row.time // windows.slide * windows.slide)
        operator.arrive(row)
    operator.punctuate(FOREVER)
    return operator
