"""Every example query of the five documents parses to the stated model, or gets the stated refusal.

One that parses also compiles, unless it says what the planner answers instead.
"""

from pathlib import Path

import pytest

from penstock.errors import NotSupportedError, RegistrationError
from penstock.planner.apart import is_joined, take_apart
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.planner.unions import distribute
from penstock.sql import CreateStream, parse_query, parse_script
from tests.sql.dump import dump

FIXTURES = Path(__file__).parent / "fixtures"
QUERIES = sorted(p for p in FIXTURES.glob("*/*.sql") if p.name != "streams.sql")


def compile_query(query, streams):
    """An aggregate over a join compiles to the join and an aggregate over its results; a union to all combinations."""
    if is_joined(query):
        apart = take_apart(query, streams, "join")
        build_network([StandingQuery(n, "q", q) for n, q in enumerate(distribute(apart.join, streams))], streams)
        query, streams = apart.aggregate, {"join": apart.stream}
    build_network([StandingQuery(n, "q", q) for n, q in enumerate(distribute(query, streams))], streams)


@pytest.mark.parametrize("path", QUERIES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_example_query(path):
    script = (path.parent / "streams.sql").read_text()
    streams = {s.stream.name: s.stream for s in parse_script(script) if isinstance(s, CreateStream)}
    text = path.read_text()
    expected = text.splitlines()[0].removeprefix("-- expect: ")
    if expected == "ok":
        wanted = [line.removeprefix("-- | ") for line in text.splitlines() if line.startswith("-- | ")]
        query = parse_query(text, streams)
        assert dump(query).splitlines() == wanted
        refusal = next((line for line in text.splitlines() if line.startswith("-- planner: ")), None)
        if refusal is None:
            compile_query(query, streams)
        else:
            kind, _, fragment = refusal.removeprefix("-- planner: ").partition(": ")
            assert kind == "RegistrationError"
            with pytest.raises(RegistrationError) as refused:
                compile_query(query, streams)
            assert fragment in str(refused.value)
    else:
        kind, _, fragment = expected.partition(": ")
        assert kind == "NotSupportedError"
        with pytest.raises(NotSupportedError) as caught:
            parse_query(text, streams)
        assert fragment in caught.value.message
