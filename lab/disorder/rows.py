"""The greatest value over windows of rows, in three ways, with the work of each (Li 2008, 6.1 and 6.2).

Window n ends with row (n + 1) * slide and holds the `length` rows before it. `probes` counts compared values, so that a
plain scan has one per row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import gcd

from lab.counts import Counts

Answers = dict[int, int]


def by_window(values: Sequence[int], length: int, slide: int) -> tuple[Answers, Counts]:
    """WID: each row goes into a partial of every window that holds it."""
    counts, answers, partial = Counts(), Answers(), Answers()
    for place, value in enumerate(values):
        for window in range(place // slide, (place + length) // slide):
            counts.probes += 1
            if window not in partial:
                counts.stored()
            partial[window] = max(value, partial.get(window, value))
        if (place + 1) % slide == 0:
            window = (place + 1) // slide - 1
            if window in partial:
                answers[window] = partial.pop(window)
                counts.removed()
    return answers, counts


def buffered(values: Sequence[int], length: int, slide: int) -> tuple[Answers, Counts]:
    """The rows of the last window are stored, and scanned when one ends."""
    counts, answers = Counts(), Answers()
    held: deque[int] = deque()
    for place, value in enumerate(values):
        held.append(value)
        counts.stored()
        if len(held) > length:
            held.popleft()
            counts.removed()
        if (place + 1) % slide == 0:
            counts.probes += len(held)
            answers[(place + 1) // slide - 1] = max(held)
    return answers, counts


def paned(values: Sequence[int], length: int, slide: int) -> tuple[Answers, Counts]:
    """Rows go into the widest panes that divide both lengths, and windows are assembled from panes."""
    width = gcd(length, slide)
    counts, answers = Counts(), Answers()
    panes: deque[int] = deque()
    for place, value in enumerate(values):
        counts.probes += 1
        if place % width == 0:
            panes.append(value)
            counts.stored()
        panes[-1] = max(panes[-1], value)
        if len(panes) > length // width:
            panes.popleft()
            counts.removed()
        if (place + 1) % slide == 0:
            counts.probes += len(panes)
            answers[(place + 1) // slide - 1] = max(panes)
    return answers, counts
