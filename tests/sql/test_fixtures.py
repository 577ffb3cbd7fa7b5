"""Every example query of the five documents parses to the stated model, or gets the stated refusal."""

from pathlib import Path

import pytest

from penstock.errors import NotSupportedError
from penstock.sql import CreateStream, parse_query, parse_script
from tests.sql.dump import dump

FIXTURES = Path(__file__).parent / "fixtures"
QUERIES = sorted(p for p in FIXTURES.glob("*/*.sql") if p.name != "streams.sql")


@pytest.mark.parametrize("path", QUERIES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_example_query(path):
    script = (path.parent / "streams.sql").read_text()
    streams = {s.stream.name: s.stream for s in parse_script(script) if isinstance(s, CreateStream)}
    text = path.read_text()
    expected = text.splitlines()[0].removeprefix("-- expect: ")
    if expected == "ok":
        wanted = [line.removeprefix("-- | ") for line in text.splitlines() if line.startswith("-- | ")]
        assert dump(parse_query(text, streams)).splitlines() == wanted
    else:
        kind, _, fragment = expected.partition(": ")
        assert kind == "NotSupportedError"
        with pytest.raises(NotSupportedError) as caught:
            parse_query(text, streams)
        assert fragment in caught.value.message
