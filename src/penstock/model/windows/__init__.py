"""The windows of aggregates, one kind a file: which windows there are, what each extends over, and which hold a row.

Every kind answers three questions about positions (event times, or ranks of rows): `windows`, the ids of the windows
that a set of positions creates; `extent`, the half-open interval of positions of one window; `wids`, the windows of one
position. `extent` defines a window, and `wids` is what is computed; they are duals (Li 2008, 5.1). `closed` tells which
windows progress has passed. Rows, groups and arrival play no part here.
"""

from penstock.model.windows.landmark import Landmark
from penstock.model.windows.per_row import PerRow
from penstock.model.windows.session import Session
from penstock.model.windows.sliding import Sliding
from penstock.model.windows.sliding_rows import SlidingRows

AggregateWindow = Sliding | Landmark | SlidingRows | PerRow | Session

__all__ = ["AggregateWindow", "Landmark", "PerRow", "Session", "Sliding", "SlidingRows"]
