"""The maximal results of one query in one step: beyond it the query is suspended, and the others continue."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.limits import MOST_BYTES, MOST_ROWS
from penstock.state.suspension import Suspension


@dataclass(frozen=True)
class Bound:
    """Rows and bytes of results as they are stored, over all tasks of a step."""

    rows: int = MOST_ROWS
    bytes: int = MOST_BYTES

    def passed(self, rows: int, size: int) -> Suspension | None:
        """Why there are too many results; None if there are not."""
        if rows > self.rows:
            what = f"more than {self.rows:,} rows"
        elif size > self.bytes:
            what = f"more than {self.bytes:,} bytes"
        else:
            return None
        why = (
            f"its results of one step are {what}, and none of them are kept; restrict the query, or raise the bound "
            "(result_rows, result_bytes of the engine) and let it go on by ALTER QUERY .. RESUME"
        )
        return Suspension(why, resumable=True)
