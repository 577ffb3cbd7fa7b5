"""The windows of aggregates, one kind a file: which windows there are, what each extends over, and in which a row is.

Every kind answers three questions about positions (event times, or ranks of rows): `windows`, the ids that a set of positions
gives rise to; `extent`, the half-open interval of positions of one window; `wids`, the windows that one position is in.
`extent` says what a window means and `wids` is what is computed; they are duals (Li 2008, 5.1). `closed` says which windows
progress has passed. Nothing here knows rows, groups or arrival.
"""

from penstock.model.windows.landmark import Landmark
from penstock.model.windows.per_row import PerRow
from penstock.model.windows.session import Session
from penstock.model.windows.sliding import Sliding
from penstock.model.windows.sliding_rows import SlidingRows

AggregateWindow = Sliding | Landmark | SlidingRows | PerRow | Session

__all__ = ["AggregateWindow", "Landmark", "PerRow", "Session", "Sliding", "SlidingRows"]
