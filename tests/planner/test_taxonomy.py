import pytest

from penstock.model import Aggregate, Expression, Ref
from penstock.planner.taxonomy import nature

X = Expression((Ref(0, "x"),), Ref(0, "x"), total=True)
COUNT, SUM, MAX = Aggregate("count", None), Aggregate("sum", X), Aggregate("max", X)


@pytest.mark.parametrize(
    ("aggregate", "kind", "expected"),
    [
        (COUNT, "bigint", ("distributive", "full", True)),
        (SUM, "bigint", ("distributive", "full", True)),
        (SUM, "decimal(10,2)", ("distributive", "full", True)),
        (SUM, "double", ("distributive", "full", False)),
        (Aggregate("avg", X), "bigint", ("algebraic", "full", True)),
        (Aggregate("var_pop", X), "bigint", ("algebraic", "full", True)),
        (Aggregate("var_pop", X), "double", ("algebraic", "full", False)),
        (MAX, "bigint", ("distributive", "none", False)),
        (Aggregate("count", X, distinct=True), "bigint", ("holistic", "pseudo", False)),
        (Aggregate("max", X, distinct=True), "bigint", ("distributive", "none", False)),
        (Aggregate("heavy_hitters", X, parameters=(0.1,)), "bigint", ("holistic", "pseudo", False)),
        (Aggregate("collect_list", X), "bigint", ("holistic", "none", False)),
        (Aggregate("approx_percentile", X, parameters=(100, 0.5)), "bigint", ("algebraic", "none", False)),
    ],
)
def test_functions_have_their_place_in_the_taxonomy(aggregate, kind, expected):
    found = nature(aggregate, kind)
    assert (found.size, found.differential, found.by_differences) == expected


def test_a_user_function_can_only_be_merged():
    found = nature(Aggregate("mine", X), "bigint")
    assert (found.size, found.differential, found.bounded) == ("algebraic", "none", True)
