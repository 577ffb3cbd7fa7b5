"""How many examples a property tries: in `make test-long` all of them, new ones each time; in `make test` a third, always the same."""

import os

ALL = os.environ.get("PENSTOCK_TESTS") == "long"


def examples(number: int) -> int:
    return number if ALL else max(1, number // 3)
