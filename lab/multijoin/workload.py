"""The input of the experiments (Golab & Ozsu 2003, 6.1): streams mixed at random in proportion to their rates.

Values are uniform over the first whole numbers, so that the values of one stream contain those of another.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from lab.workload import Arrival, LabError
from penstock.model.time import SECOND


def mixed(rates: Sequence[float], distinct: Sequence[int], seconds: float, seed: int) -> list[Arrival]:
    """Arrivals at equal distances, about `rates` per second of each stream, with values from 1 to `distinct`.

    The paper uses the running number as time. Then one tuple arrives per unit of time over all streams, and windows
    hold fewer tuples than rate times length; here the number is divided by the sum of the rates.
    """
    if len(rates) != len(distinct):
        raise LabError(f"there are {len(rates)} rates and {len(distinct)} numbers of values; give one for each stream")
    if min(rates, default=0) <= 0:
        raise LabError(f"a rate is {min(rates, default=0)}; a rate is more than 0")
    if min(distinct) < 1:
        raise LabError(f"a stream has {min(distinct)} different values; it has at least 1")
    source = random.Random(seed)  # noqa: S311  (a repeatable workload, no secret)
    total = sum(rates)
    picked = source.choices(range(len(rates)), rates, k=int(seconds * total))
    return [
        Arrival(stream, round(number * SECOND / total), number, source.randint(1, distinct[stream]))
        for number, stream in enumerate(picked, start=1)
    ]
