"""What becomes of a row on its way in. A row's `_table` is VERDICTS * table + verdict: one column less to ship."""

ACCEPTED, LATE, BAD = 0, 1, 2
VERDICTS = 4
