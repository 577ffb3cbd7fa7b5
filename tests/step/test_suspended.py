"""A suspended query goes on if nothing else is in its way, with all queries that answer it together."""

from dataclasses import replace

import pytest

from penstock.errors import RegistrationError
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord, Registry
from penstock.state.suspension import Suspension
from penstock.step.upkeep import resumed

QUERY = QueryRecord(1, "q", "")
RECORDS = (QUERY, QueryRecord(2, "_q", "", owner="q"), QueryRecord(3, "other", ""))
REGISTRY = Registry(queries=RECORDS)
AGAIN = Suspension("it raised", resumable=True)


def test_it_goes_on_with_its_parts_and_without_others():
    manifest = Manifest(step=4, suspended=dict.fromkeys((1, 2, 3), AGAIN))
    record = resumed(REGISTRY, manifest, QUERY)
    assert (record.step, record.batch) == (5, None)
    assert set(manifest.apply(record).suspended) == {3}


def test_one_that_is_not_suspended_makes_no_step():
    assert resumed(REGISTRY, Manifest(suspended={3: AGAIN}), QUERY) is None


@pytest.mark.parametrize(
    ("final", "why", "said"), [(True, AGAIN, "the streams have ended"), (False, Suspension("it is gone"), "it is gone")]
)
def test_what_cannot_go_on_is_refused_with_the_reason(final, why, said):
    manifest = replace(Manifest(suspended={1: why}), final=final)
    with pytest.raises(RegistrationError, match=f"cannot go on .{said}.*drop it and create it again"):
        resumed(REGISTRY, manifest, QUERY)
