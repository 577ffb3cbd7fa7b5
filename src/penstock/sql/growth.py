"""A size check before functions whose value may be far larger than their arguments, so that none exhausts memory.

`repeat(s, n)` has `n` times the size of `s`; a value above `LARGEST_VALUE` raises instead, as any expression of the
user may. Functions with values bounded by a small multiple of their arguments are not checked. Arguments are evaluated
once: a lambda function binds them, which also keeps Spark from evaluating calls of constants during planning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from penstock.model.limits import LARGEST_VALUE, TOO_LARGE
from penstock.sql.dialect import generate
from penstock.sql.inference import function_call, integer_literal
from penstock.sql.scope import unwrapped

GROWN = "grown"
MARKED = re.compile("\ue000\\d+\ue001")  # the name of a column of the query, not of a lambda's argument
FEW = 16  # values up to this many times the arguments need no check
MANY = 1000  # constant lengths and numbers of digits up to this need no check

Size = Callable[[Sequence[str]], str]


def _bytes(text: str) -> str:
    """The approximate size of a value of any type."""
    return f"CAST(coalesce(octet_length(CAST({text} AS STRING)), 0) AS DOUBLE)"


def _number(text: str) -> str:
    return f"coalesce(TRY_CAST(CAST({text} AS STRING) AS DOUBLE), 0D)"


def _place(text: str) -> str:
    """A number, date or time of any type on one scale."""
    timed = f"typeof({text}) LIKE 'date%' OR typeof({text}) LIKE 'timestamp%'"
    time = f"CAST(unix_micros(TRY_CAST(CAST({text} AS STRING) AS TIMESTAMP)) AS DOUBLE)"
    return f"CASE WHEN {timed} THEN {time} ELSE TRY_CAST(CAST({text} AS STRING) AS DOUBLE) END"


def _sequence(a: Sequence[str]) -> str:
    step = f"CASE WHEN typeof({a[0]}) LIKE 'date%' OR typeof({a[0]}) LIKE 'timestamp%' THEN 86400000000D ELSE 1D END"
    if len(a) > 2:
        second = _place(f"try_add({a[0]}, {a[2]})")
        step = f"nullif(abs(({second}) - ({_place(a[0])})), 0D)"
    return f"8 * (abs(({_place(a[1])}) - ({_place(a[0])})) / ({step}) + 1)"


def _replace(a: Sequence[str]) -> str:
    left = _bytes(f"replace({a[0]}, {a[1]}, '')")
    found = f"({_bytes(a[0])} - {left}) / nullif({_bytes(a[1])}, 0D)"
    return f"{_bytes(a[0])} + ({found}) * {_bytes(a[2])}"


def _regexp_replace(a: Sequence[str]) -> str:
    # A group may lie outside its match.
    inside = f"IF(contains({a[1]}, '(?='), {_bytes(a[0])} * length({a[2]}), 0D)"
    each = f"({_bytes(a[2])} + {inside})"
    few = f"{_bytes(a[0])} * (1 + length({a[2]})) + (length({a[0]}) + 1) * {each}"
    return (
        f"IF({few} <= {LARGEST_VALUE}, {few}, "
        f"{_bytes(a[0])} * (1 + length({a[2]})) + regexp_count({a[0]}, {a[1]}) * {each})"
    )


def _format(a: Sequence[str]) -> str:
    """Any number in the format may be a width, and each place may name any argument."""
    widths = f"aggregate(regexp_extract_all({a[0]}, '([0-9]+)', 1), 0D, (sum, width) -> sum + CAST(width AS DOUBLE))"
    return f"{widths} + {_bytes(a[0])} + regexp_count({a[0]}, '%') * ({_sum(a[1:])})"


def _sum(a: Sequence[str]) -> str:
    return " + ".join(_bytes(one) for one in a) or "0D"


_SIZES: dict[str, Size] = {
    "repeat": lambda a: f"{_bytes(a[0])} * {_number(a[1])}",
    "space": lambda a: _number(a[0]),
    "lpad": lambda a: f"4 * {_number(a[1])}",
    "rpad": lambda a: f"4 * {_number(a[1])}",
    "array_repeat": lambda a: f"greatest(8D, {_bytes(a[0])}) * {_number(a[1])}",
    "array_insert": lambda a: f"8 * abs({_number(a[1])}) + {_sum(a)}",
    "array_join": lambda a: f"{_bytes(a[0])} + size({a[0]}) * ({_sum(a[1:])})",
    "concat_ws": lambda a: f"({_sum(a[1:])}) * (1 + {_bytes(a[0])})",
    "regexp_extract_all": lambda a: f"IF(contains({a[1]}, '(?='), {_bytes(a[0])} * length({a[0]}), 0D)",
    "sequence": _sequence,
    "replace": _replace,
    "regexp_replace": _regexp_replace,
    "format_string": _format,
    "printf": _format,
    "format_number": lambda a: f"2 * {_number(a[1])}",
    "concat": _sum,
    **dict.fromkeys(("round", "bround", "ceil", "ceiling", "floor"), lambda a: f"abs({_number(a[1])}) * {MANY}"),
}  # fmt: skip
_ROUNDED = frozenset({"round", "bround", "ceil", "ceiling", "floor"})  # their digits must be constant
_LENGTHS = {
    "repeat": 1, "space": 0, "lpad": 1, "rpad": 1, "array_repeat": 1, "array_insert": 1, "format_number": 1,
} | dict.fromkeys(_ROUNDED, 1)  # fmt: skip
_LEAST = {
    "regexp_extract_all": 2, "sequence": 2, "replace": 3, "regexp_replace": 3, "array_join": 2, "concat_ws": 2,
    "format_string": 1, "printf": 1,
}  # fmt: skip
_MULTIPLIES = frozenset(_SIZES) - _ROUNDED - {"concat"}
_FOLDS = frozenset({"aggregate", "reduce"})
_EACH = frozenset({"transform", "zip_with", "transform_keys", "transform_values", "map_zip_with"})


def grows(name: str, arguments: Sequence[exp.Expr]) -> bool:
    """Whether a value of this call may be far larger than its arguments."""
    if name in _LENGTHS:
        if len(arguments) <= _LENGTHS[name]:
            return False
        length = integer_literal(arguments[_LENGTHS[name]])
        return (
            length is None or abs(length[0]) > (MANY if name != "repeat" else FEW) or any(map(_multiplied, arguments))
        )
    if name not in _LEAST or len(arguments) < _LEAST[name]:
        return False
    if any(map(_multiplied, arguments)):
        return True
    if name == "replace":
        return not _few(arguments[2], arguments[1])
    if name == "regexp_replace":
        return not _few(arguments[2]) or "$" in arguments[2].name
    if name == "regexp_extract_all":  # a group may lie outside its match
        return not isinstance(unwrapped(arguments[1]), exp.Literal) or "(?=" in unwrapped(arguments[1]).name
    if name == "array_join":
        return not all(map(_few, arguments[1:]))
    if name == "concat_ws":
        return not _few(arguments[0])
    if name in ("format_string", "printf"):
        text = unwrapped(arguments[0])
        return not isinstance(text, exp.Literal) or any(len(width) > 3 for width in re.findall("[0-9]+", text.name))
    return True


def _few(node: exp.Expr, beside: exp.Expr | None = None) -> bool:
    """Whether a constant is short enough to be inserted everywhere, or in place of every other constant."""
    node, other = unwrapped(node), None if beside is None else unwrapped(beside)
    if not (isinstance(node, exp.Literal) and node.is_string):
        return False
    least = len(other.name) if isinstance(other, exp.Literal) and other.is_string else 1
    return len(node.name) <= FEW * max(1, least)


def _grown(node: exp.Expr) -> bool:
    """Whether a call in the tree has a check."""
    return any(n.meta.get(GROWN) for n in node.walk())


def _multiplied(node: exp.Expr) -> bool:
    """Whether a call in the tree has a check or is larger than its arguments by a factor: several factors multiply."""
    calls = (function_call(n) for n in node.walk())
    return _grown(node) or any(c is not None and c[0] in _MULTIPLIES and not _shrinks(*c) for c in calls)


def _shrinks(name: str, arguments: Sequence[exp.Expr]) -> bool:
    """Whether the replacement is no longer than what it replaces."""
    if name != "replace" or len(arguments) != 3:
        return name == "replace"
    old, new = (unwrapped(a) for a in arguments[1:])
    constant = all(isinstance(a, exp.Literal) and a.is_string for a in (old, new))
    return constant and len(new.name.encode()) <= len(old.name.encode())


def may_grow(tree: exp.Expr) -> bool:
    """Whether a tree has anything that a check could stand before."""
    return any(isinstance(n, exp.DPipe | exp.Lambda) or function_call(n) is not None for n in tree.walk())


def guarded(tree: exp.Expr) -> exp.Expr:
    """The tree with a check before every call that may grow; its columns already have the names of the text."""
    root = exp.Paren(this=tree)
    for number, node in enumerate(reversed(list(tree.walk()))):  # inner nodes first
        text = _guard(node, f"_size{number}")
        if text is not None:
            whole = node
            while isinstance(whole.parent, exp.Dot) and whole.parent.expression is whole:
                whole = whole.parent  # system.builtin.repeat(..)
            test = exp.Var(this=text)
            test.meta[GROWN] = True
            whole.replace(test)
    return root.this  # type: ignore[no-any-return]


def _guard(node: exp.Expr, name: str) -> str | None:
    if isinstance(node, exp.DPipe):
        both = [node.this, node.expression]
        return _tested(name, both, _sum, lambda a: f"{a[0]} || {a[1]}") if any(map(_grown, both)) else None
    if isinstance(node, exp.Lambda):
        call = node.parent
        folds = isinstance(call, exp.Anonymous) and call.name.lower() in _FOLDS and call.expressions[2:3] == [node]
        if folds and any(isinstance(n, exp.Func | exp.DPipe) or n.meta.get(GROWN) for n in node.this.walk()):
            body = exp.Var(this=_tested(name, [node.this], _sum, lambda a: a[0]))
            body.meta[GROWN] = True
            node.set("this", body)
        return None
    call_of = function_call(node)
    if call_of is None:
        return None
    function, arguments = call_of
    if function in _EACH and isinstance(arguments[-1], exp.Lambda):
        return _each(name, function, arguments[:-1], arguments[-1])
    if any(isinstance(a, exp.Kwarg | exp.PropertyEQ) for a in arguments):
        return None  # Spark takes the arguments of these functions by position only
    if not (any(map(_grown, arguments)) if function == "concat" else grows(function, arguments)):
        return None
    constant = {1} if function in _ROUNDED else set()
    return _tested(name, arguments, _SIZES[function], lambda a: f"{function}({', '.join(a)})", constant)


def _each(name: str, function: str, collections: Sequence[exp.Expr], body: exp.Lambda) -> str | None:
    """A call that evaluates a body per element of a column or of a checked value: it returns as many elements."""
    columns = [generate(column) for column in body.this.find_all(exp.Column)]
    captured = [text for text in columns if MARKED.search(text)]
    grown = _grown(body.this)
    if not captured and not grown:
        return None
    number = f"size({name}.a0)"
    if grown:
        most = f"{LARGEST_VALUE} / greatest(1, {number})"
        body.set("this", exp.Var(this=_tested(f"{name}_each", [body.this], _sum, lambda a: a[0], most=most)))
    text = generate(body)
    return _tested(
        name, collections, lambda _: f"{number} * ({_sum(captured)})", lambda a: f"{function}({', '.join(a)}, {text})"
    )


def _tested(
    name: str,
    arguments: Sequence[exp.Expr],
    size: Size,
    call: Callable[[Sequence[str]], str],
    constant: set[int] | None = None,
    most: str | None = None,
) -> str:
    texts = [generate(argument) for argument in arguments]
    inline = constant or set()
    bound = [text if n in inline else f"{name}.a{n}" for n, text in enumerate(texts)]
    fields = ", ".join(f"'a{n}', {text}" for n, text in enumerate(texts) if n not in inline)
    most = most or str(LARGEST_VALUE)
    error = f"raise_error('{TOO_LARGE}')"
    value = f"CASE WHEN {size(bound)} > {most} THEN {error} ELSE {call(bound)} END"
    return f"element_at(transform(array(named_struct({fields})), {name} -> {value}), 1)"
