"""The type of an expression where it is plain; None where only Spark can tell.

Only what join keys, plain terms and totality need is inferred.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from penstock.columns.types import exact_digits
from penstock.model.stream import INTEGER_TYPES
from penstock.sql import functions
from penstock.sql.dialect import generate
from penstock.sql.lengths import whole_number
from penstock.sql.scope import TYPE, ref_of, unwrapped
from penstock.sql.types import family

VOID = "void"
COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
NUMBER_RANK = {"tinyint": 0, "smallint": 1, "int": 2, "bigint": 3, "float": 4, "double": 5}
_CONDITIONS = (
    *COMPARISONS, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike,
)  # fmt: skip


def integer_literal(node: exp.Expr) -> tuple[int, str] | None:
    """Value and type of an integer constant, with sign and suffix, if it fits 64 bits."""
    node = unwrapped(node)
    if (
        isinstance(node, exp.Cast)
        and type_of(node) == "bigint"
        and isinstance(unwrapped(node.this), exp.Literal | exp.Neg)
    ):
        inner = integer_literal(node.this)
        return None if inner is None else (inner[0], "bigint")
    if isinstance(node, exp.Neg):
        sign, operand = -1, unwrapped(node.this)
    else:
        sign, operand = 1, node
    digits = whole_number(operand.this) if isinstance(operand, exp.Literal) and not operand.is_string else None
    if digits is None:
        return None
    value = sign * digits
    if not -(2**63) <= value < 2**63:
        return None
    return value, "int" if -(2**31) <= value < 2**31 else "bigint"


def is_rearranged(node: exp.Expr) -> bool:
    """Whether Spark reorders the constants of a sum or product of integers, and so may not raise where ours does."""
    operands = [unwrapped(n) for n in node.flatten()] if isinstance(node, exp.Add | exp.Mul) else []
    nested = [n for operand in operands if type(operand) is type(node) for n in operand.flatten()]
    constants = [n for n in (*operands, *nested) if not isinstance(n, type(node)) and not any(n.find_all(exp.Column))]
    return len(constants) > 1


def function_call(node: exp.Expr) -> tuple[str, list[exp.Expr]] | None:
    """Lower-case name and arguments of a call with a list of arguments."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower(), list(node.expressions)
    if isinstance(node, exp.Substring) and not node.args.get("zero_start"):
        return "substring", [a for key in ("this", "start", "length") if (a := node.args.get(key)) is not None]
    if isinstance(node, exp.Trim) and not any(node.args.get(k) for k in ("position", "collation")):
        return "trim", [a for key in ("this", "expression") if (a := node.args.get(key)) is not None]
    return None


def type_of(node: exp.Expr) -> str | None:
    """Spark's type name; None if it is not plain."""
    node = unwrapped(node)
    if ref_of(node) is not None:
        declared = node.meta.get(TYPE)
        return str(declared) if declared else None
    if isinstance(node, _CONDITIONS):
        return "boolean"
    if isinstance(node, exp.Cast):
        return _cast_type(node)
    if isinstance(node, exp.Literal | exp.Neg | exp.Boolean | exp.Null):
        return _literal_type(node)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Mod):
        return _arithmetic_type(type_of(node.this), type_of(node.expression))
    if isinstance(node, exp.IntDiv):
        both = {type_of(node.this), type_of(node.expression)}
        return "bigint" if both <= INTEGER_TYPES else None
    if isinstance(node, exp.DPipe):
        both = {type_of(node.this), type_of(node.expression)}
        return "string" if both == {"string"} else None
    if isinstance(node, exp.Case | exp.If):
        return _common_type(choices(node))
    if isinstance(node, exp.Extract):
        return "int" if node.name.lower() in functions.TIME_PARTS | {"hour", "minute"} else None
    call = function_call(node)
    return None if call is None else _call_type(*call)


def shape_of(node: exp.Expr) -> str | None:
    """The type of an expression, or at least its kind: `struct<..>` of a call that makes a struct."""
    call = function_call(unwrapped(node))
    kind = None if call is None else functions.CONSTRUCTORS.get(call[0])
    return type_of(node) if kind is None else f"{kind}<..>"


def _literal_type(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Null):
        return VOID
    if isinstance(node, exp.Boolean):
        return "boolean"
    integer = integer_literal(node)
    if integer is not None:
        return integer[1]
    if isinstance(node, exp.Neg):
        return type_of(node.this)
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return "string"
    text = str(node.this).lower()
    if "e" in text:
        return "double"
    whole, _, fraction = text.partition(".")
    digits = len(whole.lstrip("0")) + len(fraction)
    return f"decimal({max(digits, 1)},{len(fraction)})" if digits <= 38 else None


def _cast_type(node: exp.Cast) -> str | None:
    name = generate(node.to).lower().replace(", ", ",")
    if name == "decimal" or (name.startswith("decimal(") and "," not in name):
        return f"decimal({name[8:-1] or 10},0)"  # Spark's defaults
    return name


def _arithmetic_type(left: str | None, right: str | None) -> str | None:
    if left is None or right is None or not {family(left), family(right)} <= {"integer", "floating"}:
        floating = "floating" in (family(left), family(right))
        decimals = any(t is not None and exact_digits(t) for t in (left, right))
        return "double" if floating and decimals else None
    if family(left) != family(right):
        return "double"  # in ANSI mode, also beside float
    return max(left, right, key=lambda t: NUMBER_RANK[t])


def _common_type(nodes: Iterable[exp.Expr]) -> str | None:
    types = {type_of(n) for n in nodes} - {VOID}
    if len(types) == 1:
        return types.pop()
    if {family(t) for t in types} in ({"integer"}, {"floating"}):
        return max((t for t in types if t), key=lambda t: NUMBER_RANK[t])
    return None


def choices(node: exp.Expr) -> list[exp.Expr]:
    """The possible values of CASE or IF."""
    if isinstance(node, exp.Case):
        values = [branch.args["true"] for branch in node.args["ifs"]]
        default = node.args.get("default")
    else:
        values, default = [node.args["true"]], node.args.get("false")
    return [*values, *([default] if default is not None else [])]


def _call_type(name: str, arguments: list[exp.Expr]) -> str | None:
    if name in functions.STRING_FUNCTIONS:
        strings = all(type_of(a) == "string" for a in arguments)
        return functions.STRING_FUNCTIONS[name] if strings else None
    if name in functions.SUBSTRING_FUNCTIONS:
        return "string" if arguments and type_of(arguments[0]) == "string" else None
    if name in ("abs", "nullif") and arguments:
        return type_of(arguments[0])
    if name == "isnan" or name in functions.NULL_TESTS:
        return "boolean"
    if name in functions.FLOATING_FUNCTIONS:
        return "double"
    if name in functions.TIME_PARTS | functions.CLOCK_PARTS:
        return "int"
    if name in functions.CHOICE_FUNCTIONS:
        return _common_type(arguments)
    if name == "date_trunc":
        return "timestamp" if len(arguments) == 2 and type_of(arguments[1]) == "timestamp" else None
    return None
