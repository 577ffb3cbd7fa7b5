"""What an analysis without Spark says of a query, and what it leaves to Spark by name."""

import pytest

from penstock.catalog.analysis import analyze
from penstock.catalog.terms_analysis import TermsAnalysis
from penstock.errors import RegistrationError
from penstock.sql import parse_query
from tests.sql.streams import STREAMS


def facts(text):
    return analyze(TermsAnalysis(), "q", parse_query(text, STREAMS), STREAMS)


def test_the_types_of_items_and_keys():
    found = facts(
        "SELECT a.k, a.n + b.big AS total, upper(a.s) AS loud, result_time "
        "FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k AND a.x > 1"
    )
    assert found.names == ("k", "total", "loud", "result_time")
    assert found.types == ("string", "bigint", "string", "timestamp")
    assert found.key_types == (("string", "string"),)


def test_the_types_of_groups_arguments_and_values():
    found = facts(
        "SELECT k, sum(n) AS s, avg(d) AS m, window_end FROM a [TUMBLING 5 SECONDS] GROUP BY k "
        "HAVING count(*) > 1 EMIT EARLY EVERY 1 SECOND"
    )
    assert found.names == ("k", "s", "m", "window_end", "_revision", "_final")
    assert found.types == ("string", "bigint", "decimal(14,6)", "timestamp", "bigint", "boolean")
    assert found.aggregated == (("string",), ("int", "decimal(10,2)", ""), ("bigint", "decimal(14,6)", "bigint"))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("SELECT element_at(arr, 1) AS c FROM a", r"the type of ELEMENT_AT\(arr, 1\) is known to Spark alone"),
        ("SELECT k FROM a WHERE element_at(arr, 1) < 2",
         r"the type of ELEMENT_AT\(arr, 1\) < 2 is known to Spark alone"),
        ("SELECT n + 1 FROM a", r"only Spark gives n \+ 1 a name, .* use AS"),
        ("SELECT k FROM a WHERE n + 1", r"n \+ 1 is int, and a condition is boolean"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name(text, cause):
    with pytest.raises(RegistrationError, match=f"^query 'q': .*{cause}"):
        facts(text)
