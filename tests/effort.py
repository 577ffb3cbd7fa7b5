"""How many examples a property tries: all of them in `make test-long`, half of them in `make test`."""

import os

ALL = os.environ.get("PENSTOCK_TESTS") == "long"


def examples(number: int) -> int:
    return number if ALL else max(1, number // 2)
