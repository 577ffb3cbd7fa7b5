"""The functions that have terms: the arguments that they need, and the equivalent term."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.columns.terms.patterns import translated
from penstock.columns.terms.raising import may_raise
from penstock.columns.terms.times import CALENDAR_UNITS, CLOCK_PARTS, DATE_PARTS, PATTERN, UNITS
from penstock.columns.types import exact_digits
from penstock.model import Call, Choice, Compare, IsNull, Literal, Not
from penstock.sql.casts import local
from penstock.sql.found import Found, aligned, condition, in_type, text_constant, whole_constant, widest
from penstock.sql.inference import VOID
from penstock.sql.types import family

Arguments = Sequence[Found | None]
Function = Callable[[str, Arguments], Found | None]
_CASES = frozenset({"lower", "upper"})
_SAME = {"char_length": "length", "character_length": "length", "len": "length", "lcase": "lower", "ucase": "upper"}


def _strings(arguments: Arguments) -> list[Found] | None:
    found = [a for a in arguments if a is not None and a.type == "string"]
    return found if found and len(found) == len(arguments) else None


def _of_string(kind: str) -> Function:
    """A function of one string."""

    def function(name: str, arguments: Arguments) -> Found | None:
        found = _strings(arguments)
        if found is None or len(found) != 1:
            return None
        name, inner = _SAME.get(name, name), found[0].term
        if name in _CASES and isinstance(inner, Call) and inner.function in _CASES:  # as in Spark's optimizer
            inner = inner.arguments[0]
        return Found(Call(name, (inner,), kind), kind)

    return function


def _constant_texts(kind: str, constants: int, first: str | None = None) -> Function:
    """A function of a string and constant strings, none empty except the last of several."""

    def function(name: str, arguments: Arguments) -> Found | None:
        texts = [text_constant(a) for a in arguments[1:]]
        known = [t for t in texts if t is not None]
        subject = arguments[0] if arguments else None
        if (
            subject is None
            or subject.type != "string"
            or len(known) != constants
            or len(texts) != constants
            or not known[0]
        ):
            return None
        return Found(Call(first or name, (subject.term,), kind, tuple(known)), kind)

    return function


def _concat(_name: str, arguments: Arguments) -> Found | None:
    found = _strings(arguments)
    if found is None or any(may_raise(f.term) for f in found):
        return None
    return Found(Call("concat", tuple(f.term for f in found), "string"), "string")


def _substring(_name: str, arguments: Arguments) -> Found | None:
    numbers = [whole_constant(a) for a in arguments[1:]]
    known = tuple(n for n in numbers if n is not None)
    subject = arguments[0] if arguments else None
    if subject is None or subject.type != "string" or len(known) < len(numbers) or not 1 <= len(known) <= 2:
        return None
    return Found(Call("substring", (subject.term,), "string", known), "string")


def _left(_name: str, arguments: Arguments) -> Found | None:
    return (
        _substring("", [arguments[0], Found(Literal(1, "bigint"), "int", constant=True), arguments[1]])
        if len(arguments) == 2
        else None
    )


def _right(_name: str, arguments: Arguments) -> Found | None:
    count = whole_constant(arguments[1]) if len(arguments) == 2 else None
    if count is None or not 0 < count < 2**31:
        return None
    return _substring("", [arguments[0], Found(Literal(-count, "bigint"), "int", constant=True)])


def _split_part(_name: str, arguments: Arguments) -> Found | None:
    if len(arguments) != 3:
        return None
    subject, delimiter, number = arguments[0], text_constant(arguments[1]), whole_constant(arguments[2])
    if subject is None or subject.type != "string" or not delimiter or not number:
        return None
    parts = Call("split", (subject.term,), "array<string>", (delimiter,))
    return Found(Call("piece_of", (parts,), "string", (number,)), "string")


def _regexp_extract(_name: str, arguments: Arguments) -> Found | None:
    if len(arguments) not in (2, 3):
        return None
    subject, pattern = arguments[0], text_constant(arguments[1])
    group = whole_constant(arguments[2]) if len(arguments) == 3 else 1
    known = None if pattern is None else translated(pattern)
    if subject is None or subject.type != "string" or pattern is None or known is None or group is None:
        return None
    if not 0 <= group <= known[1]:
        return None
    return Found(Call("regexp_extract", (subject.term,), "string", (pattern, group)), "string")


def _part(name: str, arguments: Arguments) -> Found | None:
    """A part of a date or a time."""
    time = arguments[0] if len(arguments) == 1 else None
    if (
        time is None
        or time.type not in ("date", "timestamp", "timestamp_ntz")
        or (time.type == "date" and name in CLOCK_PARTS)
    ):
        return None
    wall = local(time) if time.type == "timestamp" else time.term
    if name in DATE_PARTS and time.type != "date":
        wall = Call("day_of", (wall,), "date")
    return Found(Call(name, (wall,), "int"), "int")


def _date_trunc(_name: str, arguments: Arguments) -> Found | None:
    if len(arguments) != 2:
        return None
    unit, time = (text_constant(arguments[0]) or "").lower(), arguments[1]
    if unit not in UNITS | CALENDAR_UNITS or time is None or time.type != "timestamp":
        return None
    cut = Call("date_trunc", (local(time),), "timestamp_ntz", (unit,))
    return Found(Call("instant", (cut,), "timestamp"), "timestamp")


def _date_format(_name: str, arguments: Arguments) -> Found | None:
    if len(arguments) != 2:
        return None
    time, pattern = arguments[0], text_constant(arguments[1])
    if time is None or time.type != "timestamp" or not pattern or PATTERN.fullmatch(pattern) is None:
        return None
    return Found(Call("date_format", (local(time),), "string", (pattern,)), "string")


def _coalesce(_name: str, arguments: Arguments) -> Found | None:
    found = [a for a in arguments if a is not None]
    kind = widest(found) if found and len(found) == len(arguments) else None
    if kind is None:
        return None
    terms = [in_type(f, kind) for f in found]
    known = [t for t in terms if t is not None]
    if len(known) < len(terms):
        return None
    branches = tuple((Not(IsNull(f.term)), term) for f, term in zip(found[:-1], known[:-1], strict=True))
    return Found(Choice(branches, known[-1], kind), kind) if branches else Found(known[0], kind)


def _nullif(_name: str, arguments: Arguments) -> Found | None:
    if len(arguments) != 2 or arguments[0] is None or arguments[1] is None or arguments[0].type == VOID:
        return None
    if any(a is not None and may_raise(a.term) for a in arguments):
        return None  # Spark evaluates it first, and raises for all rows
    pair = aligned(arguments[0], arguments[1])
    kind = arguments[0].type
    return (
        None
        if pair is None
        else Found(Choice(((Compare("=", *pair), Literal(None, VOID)),), arguments[0].term, kind), kind)
    )


def _if(_name: str, arguments: Arguments) -> Found | None:
    truth = condition(arguments[0]) if len(arguments) == 3 else None
    values = [a for a in arguments[1:] if a is not None]
    kind = widest(values) if len(values) == 2 else None
    if truth is None or kind is None or may_raise(truth):
        return None
    yes, no = (in_type(v, kind) for v in values)
    return None if yes is None or no is None else Found(Choice(((truth, yes),), no, kind), kind)


def _null_test(name: str, arguments: Arguments) -> Found | None:
    if len(arguments) != 1 or arguments[0] is None or may_raise(arguments[0].term):
        return None
    null = IsNull(arguments[0].term)
    return Found(null if name == "isnull" else Not(null), "boolean")


def _absolute(_name: str, arguments: Arguments) -> Found | None:
    number = arguments[0] if len(arguments) == 1 else None
    if (
        number is None
        or number.type == "float"
        or not (family(number.type) in ("integer", "floating") or exact_digits(number.type))
    ):
        return None
    return Found(Call("abs", (number.term,), number.type), number.type)


FUNCTIONS: dict[str, Function] = {
    **dict.fromkeys(("lower", "lcase", "upper", "ucase", "trim", "ltrim", "rtrim"), _of_string("string")),
    **dict.fromkeys(
        ("length", "char_length", "character_length", "len", "octet_length", "bit_length"), _of_string("int")
    ),
    **dict.fromkeys(("contains", "startswith", "endswith"), _constant_texts("boolean", 1)),
    "replace": _constant_texts("string", 2), "concat": _concat, "substring": _substring, "substr": _substring,
    "left": _left, "right": _right, "split_part": _split_part, "regexp_extract": _regexp_extract,
    **dict.fromkeys((*DATE_PARTS, *CLOCK_PARTS), _part),
    "date_trunc": _date_trunc, "date_format": _date_format,
    **dict.fromkeys(("coalesce", "nvl", "ifnull"), _coalesce), "nullif": _nullif, "if": _if,
    **dict.fromkeys(("isnull", "isnotnull"), _null_test), "abs": _absolute,
}  # fmt: skip
