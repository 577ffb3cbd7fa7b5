"""Costs of buckets, drawn."""

import numpy as np
from hypothesis import strategies as st

from penstock.state.balance.costs import Costs
from penstock.state.buckets import BucketMap, Split

BUCKETS = 16


def costs_of(own, shared=None, results=None, stored=None):
    """Costs of so many buckets; what is not given costs nothing."""
    none = [0.0] * len(own)
    return Costs(*(np.array(part or none, dtype=float) for part in (own, shared, results, stored)))


@st.composite
def costs(draw, buckets=BUCKETS):
    """Few values, so that ties are frequent; sometimes one bucket is far above all others."""
    amount = st.sampled_from((0.0, 0.0, 1.0, 1.0, 2.0, 5.0))
    parts = [draw(st.lists(amount, min_size=buckets, max_size=buckets)) for _ in range(2)]
    if draw(st.booleans()):
        parts[draw(st.integers(0, 1))][draw(st.integers(0, buckets - 1))] = 80.0
    return costs_of(*parts)


@st.composite
def maps(draw, buckets=BUCKETS, least=1, most=5):
    """Maps in which every task has a bucket."""
    tasks = draw(st.integers(least, most))
    starts = draw(st.sets(st.integers(1, buckets - 1), min_size=tasks - 1, max_size=tasks - 1))
    return BucketMap((0, *sorted(starts)), buckets)


@st.composite
def split_maps(draw, buckets=BUCKETS):
    of = draw(maps(buckets))
    hot = draw(st.sets(st.integers(0, buckets - 1), max_size=3))
    turns = st.lists(st.integers(0, of.tasks - 1), min_size=1, max_size=4)
    return BucketMap(of.starts, buckets, tuple(Split(bucket, tuple(draw(turns))) for bucket in sorted(hot)))
