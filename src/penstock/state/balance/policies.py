"""The policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.state.balance.active_disk import active_disk
from penstock.state.balance.costs import Costs
from penstock.state.balance.decision import Decision, Parameters
from penstock.state.balance.lazy_disk import lazy_disk
from penstock.state.balance.pairwise import pairwise
from penstock.state.balance.weighted import weighted
from penstock.state.buckets import BucketMap

# (map, costs, seconds since the last change, parameters) -> (map, decision)
Policy = Callable[[BucketMap, Costs, float, Parameters], tuple[BucketMap, Decision]]

POLICIES: Mapping[str, Policy] = {
    "weighted": weighted,
    "pairwise": pairwise,
    "lazy_disk": lazy_disk,
    "active_disk": active_disk,
}
OFF = "off"  # every task has as many buckets as any other
# Those of an engine: it has no tier of memory of its own, files are mapped.
CHOICES = ("auto", OFF, "weighted", "pairwise")
