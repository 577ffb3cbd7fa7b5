"""Limits of what one query may take at a time, so that an answer far larger than its input cannot exhaust memory.

Answers stored in compact form (equal windows as one row) are unlimited; the limits are for what is built row by row.
"""

MOST_ROWS = 100_000_000  # stored results of a query in a step, unless the engine is configured otherwise
MOST_BYTES = 32 << 30  # bytes of these results
MOST_BUILT = 1 << 24  # windows, or items of lists, that a task builds for a query in a step
MOST_DELIVERED = 100_000_000  # results of a query delivered to a sink at once
MOST_TAKEN = 50_000_000  # results of a query that a step reads for dependent queries, or a refresh for a view
MOST_SORTED = 1 << 24  # results sorted in the memory of the driver
MOST_TICKS = 1_000_000  # ticks at which one joined row counts
LARGEST_VALUE = 64 << 20  # bytes of a value returned by a function whose result may exceed its arguments
TOO_LARGE = f"a value is larger than {LARGEST_VALUE:,} bytes"
