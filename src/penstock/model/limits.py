"""How much one query may ask for at a time: limits that keep an answer far larger than its input from taking all memory.

Answers that are stored in short (equal windows as one row) have no limit; these are for what has to be built one by one.
"""

MOST_ROWS = 100_000_000  # results of a query in a step, as they are stored, unless the engine is told otherwise
MOST_BYTES = 32 << 30  # of them
MOST_BUILT = 1 << 24  # windows, or items of lists, that a task builds for a query in a step
MOST_DELIVERED = 100_000_000  # results of a query that go to a sink at once
MOST_TAKEN = 50_000_000  # results of a query that a step takes in for those that read it, or a refresh for a view
MOST_SORTED = 1 << 24  # results that are put together in the memory of the driver
MOST_TICKS = 1_000_000  # ticks at which one joined row counts
LARGEST_VALUE = 64 << 20  # bytes of a value that a function which can make more of its arguments may return
TOO_LARGE = f"a value is larger than {LARGEST_VALUE:,} bytes"
