"""Which records answer a query, found alone and for many together."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.catalog.lineage import lineage, lineages
from penstock.state.registry import QueryRecord, Registry
from tests.effort import examples

FACTS = st.tuples(st.booleans(), st.booleans(), st.integers(0, 20))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(FACTS, min_size=1, max_size=12))
def test_a_query_has_its_parts_behind_it_and_what_it_continues_before(facts):
    records = []
    for number, (part, goes_on, which) in enumerate(facts, start=1):
        leads = [r.id for r in records if r.united is None]
        other = leads[which % len(leads)] if leads else None
        united, replaces = (other, None) if part else (None, other if goes_on else None)
        records.append(QueryRecord(number, f"q{number}", "SELECT 1", united=united, replaces=replaces))
    registry = Registry(1, 99, queries=tuple(records))
    of = lineages(registry)
    for record in records:
        leads, before = [record], {r.id: r for r in records}
        while leads[0].replaces is not None:
            leads.insert(0, before[leads[0].replaces])
        wanted = [one for lead in leads for one in (lead, *(r for r in records if r.united == lead.id))]
        assert of(record) == lineage(registry, record) == wanted
