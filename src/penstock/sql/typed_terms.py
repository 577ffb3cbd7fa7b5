"""Bound syntax trees to typed terms: what kernels compute as in Spark's ANSI mode, with its types and implicit casts.

A tree has such a term only if all of it does (decision 0012). Groups and aggregates have none, nor has what depends on
the clock. What depends on the session's time zone passes through `local` and `instant`, to which `planner/meaning`
supplies the zone. Functions are in `typed_functions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.columns.terms.patterns import translated
from penstock.columns.terms.raising import is_computed_whole, is_decided_in_order, may_raise
from penstock.columns.types import exact_digits
from penstock.model import And, Call, Choice, Column, Compare, In, IsNull, Literal, Not, Or, Role, Stream, Term, Typed
from penstock.sql.casts import cast_term, constant_time
from penstock.sql.dialect import parse_select, tokenize
from penstock.sql.found import Found, aligned, condition, in_type, text_constant, together, widest
from penstock.sql.inference import VOID, function_call, integer_literal, is_rearranged, type_of
from penstock.sql.position import Text
from penstock.sql.scope import Scope, bind, ref_of, unwrapped
from penstock.sql.typed_functions import FUNCTIONS
from penstock.sql.types import family

TYPES = frozenset({
    "tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "date", "timestamp",
    "timestamp_ntz",
})  # fmt: skip
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Mod: "%",
    exp.Div: "/",
    exp.IntDiv: "div",
}
# Of EXTRACT; the others have different names there.
_PARTS = frozenset({"year", "quarter", "month", "day", "hour", "minute"})


def typed_term(node: exp.Expr) -> Found | None:
    """The term of a tree, with its type; None if some part of it needs Spark."""
    node = unwrapped(node)
    ref = ref_of(node)
    if ref is not None:
        kind = type_of(node)
        known = ref.role >= 0 and kind is not None and (kind in TYPES or kind.startswith("decimal("))
        return Found(Typed(ref, str(kind)), str(kind)) if known else None
    if isinstance(node, exp.And | exp.Or):
        return _connected(node)
    if isinstance(node, exp.Not):
        inner = condition(typed_term(node.this))
        return None if inner is None else Found(Not(inner), "boolean")
    if isinstance(node, exp.Is):
        tested = typed_term(node.this) if isinstance(node.expression, exp.Null) else None
        return None if tested is None or may_raise(tested.term) else Found(IsNull(tested.term), "boolean")
    if type(node) in _OPERATORS:
        return _compared(_OPERATORS[type(node)], typed_term(node.this), typed_term(node.expression))
    if isinstance(node, exp.Between):
        return _between(node)
    if isinstance(node, exp.In):
        return _membership(node)
    if isinstance(node, exp.Like | exp.RegexpLike):
        return _like(node)
    if type(node) in _ARITHMETIC and not is_rearranged(node):
        return _arithmetic(_ARITHMETIC[type(node)], typed_term(node.this), typed_term(node.expression))
    if isinstance(node, exp.DPipe):
        return FUNCTIONS["concat"]("concat", [typed_term(node.this), typed_term(node.expression)])
    if isinstance(node, exp.Case | exp.If):
        return _case(node)
    if isinstance(node, exp.Extract):
        name = node.name.lower()
        return FUNCTIONS[name](name, [typed_term(node.expression)]) if name in _PARTS else None
    call = function_call(node)
    if call is not None:
        name, arguments = call
        return FUNCTIONS[name](name, [typed_term(a) for a in arguments]) if name in FUNCTIONS else None
    return _constant(node) or _cast(node)


def term_in_text(text: str, columns: Sequence[Column]) -> Found | None:
    """The term of an expression over the unqualified columns of one stream."""
    source = Text(f"SELECT {text}")
    stream = Stream("source", tuple(columns), columns[0].name, delay=None)
    scope = Scope(source, (Role(stream.name, stream.name, None),), (stream,))
    (item,) = parse_select(source, tokenize(source)).expressions
    return typed_term(bind(item, scope))


def _constant(node: exp.Expr) -> Found | None:
    if isinstance(node, exp.Null):
        return Found(Literal(None, VOID), VOID, constant=True)
    if isinstance(node, exp.Boolean):
        return Found(Literal(bool(node.this), "boolean"), "boolean", constant=True)
    integer = integer_literal(node)
    if integer is not None:
        return Found(Literal(integer[0], "bigint"), integer[1], constant=True)
    if isinstance(node, exp.Literal) and node.is_string:
        return Found(Literal(node.name, "string"), "string", constant=True)
    if isinstance(node, exp.Neg):
        return _negated(typed_term(node.this))
    kind = type_of(node)
    if not isinstance(node, exp.Literal):
        return None
    if kind == "double":
        return Found(Literal(float(node.this), "double"), kind, constant=True)
    if kind is not None and kind.startswith("decimal("):
        return Found(Literal(str(node.this), kind), kind, constant=True)
    return None


def _negated(inner: Found | None) -> Found | None:
    if (
        inner is None
        or inner.type == "float"
        or not (family(inner.type) in ("integer", "floating") or exact_digits(inner.type))
    ):
        return None
    return Found(Call("negate", (inner.term,), inner.type), inner.type)


def _cast(node: exp.Expr) -> Found | None:
    if not isinstance(node, exp.Cast) or node.args.get("safe") or node.args.get("format"):
        return None
    target = type_of(node)
    literal = unwrapped(node.this)
    if isinstance(literal, exp.Literal) and literal.is_string:
        return constant_time(literal.name, target or "")
    inner = typed_term(node.this)
    if isinstance(literal, exp.Literal) and target == "double":
        return Found(Literal(float(literal.this), "double"), "double", constant=True)
    return None if inner is None or target is None else cast_term(inner, target)


def _connected(node: exp.And | exp.Or) -> Found | None:
    terms = [condition(typed_term(n)) for n in node.flatten()]
    known = tuple(t for t in terms if t is not None)
    if len(known) < len(terms) or not is_decided_in_order(known):
        return None
    return Found(And(known) if isinstance(node, exp.And) else Or(known), "boolean")


def _compared(operator: str, left: Found | None, right: Found | None) -> Found | None:
    pair = None if left is None or right is None else aligned(left, right)
    return None if pair is None or not is_computed_whole(pair) else Found(Compare(operator, *pair), "boolean")


def _between(node: exp.Between) -> Found | None:
    if node.args.get("symmetric"):
        return None
    tested, low, high = (typed_term(n) for n in (node.this, node.args["low"], node.args["high"]))
    if any(found is not None and may_raise(found.term) for found in (tested, low, high)):
        return None  # Spark evaluates it first, and raises for all rows
    halves = [_compared(">=", tested, low), _compared("<=", tested, high)]
    known = tuple(half.term for half in halves if half is not None)
    return Found(And(known), "boolean") if len(known) == 2 else None


def _membership(node: exp.In) -> Found | None:
    """Spark casts all to one type: here they must have it, or be constants that fit it."""
    subject = typed_term(node.this)
    values = [typed_term(element) for element in node.expressions]
    if (
        subject is None
        or not values
        or may_raise(subject.term)
        or family(subject.type) not in ("integer", "string", "boolean")
    ):
        return None
    options: list[Literal] = []
    for value in values:
        if (
            value is None
            or not isinstance(value.term, Literal)
            or family(value.type) not in (family(subject.type), VOID)
        ):
            return None
        options.append(value.term)
    return Found(In(subject.term, tuple(options)), "boolean")


def _like(node: exp.Like | exp.RegexpLike) -> Found | None:
    text, pattern = typed_term(node.this), text_constant(typed_term(node.expression))
    if text is None or text.type != "string" or pattern is None:
        return None
    if isinstance(node, exp.RegexpLike):
        known = translated(pattern) is not None
        return Found(Call("rlike", (text.term,), "boolean", (pattern,)), "boolean") if known else None
    if "\\" in pattern:
        return None
    term = Call("like", (text.term,), "boolean", (pattern,))
    return Found(Not(term) if node.args.get("negate") else term, "boolean")


def _arithmetic(operator: str, left: Found | None, right: Found | None) -> Found | None:
    pair = None if left is None or right is None else together(operator, left, right)
    if pair is None:
        return None
    one, other, kind = pair
    return Found(Call(operator, (one, other), kind), kind) if is_computed_whole((one, other)) else None


def _case(node: exp.Case | exp.If) -> Found | None:
    default: Found | None = Found(Literal(None, VOID), VOID)
    if isinstance(node, exp.Case):
        ifs, last = node.args["ifs"], node.args.get("default")
        subject = None if node.this is None else typed_term(node.this)
        if node.this is not None and subject is None:
            return None
    else:
        ifs, last, subject = [node], node.args.get("false"), None
    conditions: list[Term] = []
    values: list[Found] = []
    for branch in ifs:
        tested = typed_term(branch.this)
        truth = condition(tested if subject is None else _compared("=", subject, tested))
        value = typed_term(branch.args["true"])
        if truth is None or value is None or may_raise(truth):
            return None
        conditions.append(truth)
        values.append(value)
    if last is not None:
        default = typed_term(last)
    if default is None:
        return None
    kind = widest([*values, default])
    shown = [None if kind is None else in_type(value, kind) for value in (*values, default)]
    terms = [term for term in shown if term is not None]
    if kind is None or len(terms) < len(shown):
        return None
    return Found(Choice(tuple(zip(conditions, terms[:-1], strict=True)), terms[-1], kind), kind)
