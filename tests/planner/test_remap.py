from hypothesis import given
from hypothesis import strategies as st

from penstock.model import And, Arithmetic, Compare, Expression, In, IsNull, Literal, Not, Or, Ref
from penstock.planner.remap import map_term, remap_expression
from penstock.reference import evaluate
from tests.kernels import terms

ONE = Literal(1, "bigint")


def remap_term(term, roles):
    return map_term(term, lambda ref: Ref(roles.get(ref.role, ref.role), ref.column))


def test_every_kind_of_term_is_renamed():
    def over(a, b):
        return And(
            (
                Or((Compare("<", Arithmetic("+", Ref(a, "x"), ONE), Ref(b, "y")), IsNull(Ref(b, "y")))),
                Not(In(Ref(a, "x"), (ONE,))),
                Compare("=", Ref(-1, "result_time"), ONE),
            )
        )

    assert remap_term(over(0, 1), {0: 1, 1: 0}) == over(1, 0)
    assert remap_term(over(0, 1), {}) == over(0, 1)


def test_text_and_term_are_renamed_alike():
    before = Expression((Ref(0, "x"), " < ", Ref(2, "y")), Compare("<", Ref(0, "x"), Ref(2, "y")), total=True)
    after = remap_expression(before, {0: 2, 2: 0})
    assert after == Expression((Ref(2, "x"), " < ", Ref(0, "y")), Compare("<", Ref(2, "x"), Ref(0, "y")), total=True)
    assert remap_expression(Expression(("f(", Ref(0, "x"), ")"), None, total=False), {0: 3}).roles == (3,)


@given(terms.comparisons(), terms.rows(min_size=1, max_size=1), st.integers(1, 5))
def test_a_renamed_term_has_the_same_value(term, table, role):
    def value(term, wanted):
        def lookup(ref):
            assert ref.role == wanted
            return table[0][ref.column]

        try:
            return evaluate(term, lookup)
        except Exception as error:  # noqa: BLE001  (whatever it raises, it raises after renaming too)
            return type(error)

    assert value(remap_term(term, {0: role}), role) == value(term, 0)
