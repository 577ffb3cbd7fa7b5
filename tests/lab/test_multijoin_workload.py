from collections import Counter
from itertools import pairwise

import pytest

from lab.multijoin.workload import mixed
from lab.workload import LabError
from penstock.model.time import SECOND

RATES, VALUES = (10, 1, 1, 3), (500, 50, 40, 5)


def test_streams_are_mixed_in_proportion_to_their_rates_and_windows_hold_rate_times_length():
    arrivals = mixed(RATES, VALUES, 1000, seed=1)
    assert len(arrivals) == 15_000
    assert [x.number for x in arrivals] == list(range(1, 15_001))
    assert arrivals[-1].time == 1000 * SECOND
    assert all(0 <= later.time - earlier.time - SECOND // 15 <= 1 for earlier, later in pairwise(arrivals))
    counted = Counter(x.stream for x in arrivals)
    for stream, rate in enumerate(RATES):
        assert counted[stream] == pytest.approx(1000 * rate, rel=0.1)


def test_values_are_uniform_and_those_of_one_stream_contain_those_of_another():
    arrivals = mixed(RATES, VALUES, 1000, seed=1)
    for stream, values in enumerate(VALUES):
        counted = Counter(x.value for x in arrivals if x.stream == stream)
        assert set(counted) == set(range(1, values + 1))
        assert max(counted.values()) < 3 * 1000 * RATES[stream] / values


def test_the_input_follows_from_its_seed():
    assert mixed(RATES, VALUES, 10, seed=1) == mixed(RATES, VALUES, 10, seed=1) != mixed(RATES, VALUES, 10, seed=2)


@pytest.mark.parametrize(
    ("rates", "values", "message"),
    [
        ((1, 0), (5, 5), "a rate is 0"),
        ((), (), "a rate is 0"),
        ((1, 1), (5, 0), "0 different values"),
        ((1, 1), (5,), "2 rates and 1 numbers of values"),
    ],
)
def test_what_cannot_be_mixed_is_refused(rates, values, message):
    with pytest.raises(LabError, match=message):
        mixed(rates, values, 10, seed=0)
