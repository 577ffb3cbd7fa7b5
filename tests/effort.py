"""How many examples a property tries: all and random in `make test-long`; a fixed third in `make test`."""

import os

ALL = os.environ.get("PENSTOCK_TESTS") == "long"
MUTATED = os.environ.get("PENSTOCK_TESTS") == "mutated"  # the first failure is enough, however large its example is


def examples(number: int) -> int:
    return number if ALL else max(1, number // 3)
