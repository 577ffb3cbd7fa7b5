"""The meaning of terms under the SQL settings of a state directory: the session's time zone, and ANSI mode.

Terms are made for UTC and ANSI mode. For a zone with a fixed offset they get the offset; in any other zone, terms that
depend on it are left to Spark. Without ANSI mode all computing terms are: Spark then casts differently, and wraps
around instead of raising.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from penstock.model import Arithmetic, Call, Expression, Query, Term
from penstock.planner.remap import rebuilt

ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"
_UTC = frozenset({"UTC", "GMT", "Z", "UT", "Etc/UTC", "Etc/GMT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal"})
_FIXED = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d):(\d\d)")
_ZONED = frozenset({"local", "instant"})

Part = TypeVar("Part")


def settled(query: Query, settings: Mapping[str, str]) -> Query:
    """The query with only those terms that agree with Spark under these settings."""
    if _is_usual(settings):
        return query

    def settle(expression: Expression) -> Expression:
        return (
            expression if expression.term is None else replace(expression, term=settled_term(expression.term, settings))
        )

    return _mapped(query, settle)


def settled_term(term: Term, settings: Mapping[str, str]) -> Term | None:
    """The term that agrees with Spark under these settings; None if there is none."""
    if _is_usual(settings) or not any(isinstance(part, Call | Arithmetic) for part in parts_of(term)):
        return term
    if settings.get(ANSI, "true") != "true":
        return None
    if not any(isinstance(part, Call) and part.function in _ZONED for part in parts_of(term)):
        return term
    offset = offset_of(settings.get(ZONE, "UTC"))
    return None if offset is None else _moved(term, offset)


def _is_usual(settings: Mapping[str, str]) -> bool:
    return offset_of(settings.get(ZONE, "UTC")) == 0 and settings.get(ANSI, "true") == "true"


def offset_of(zone: str) -> int | None:
    """A zone's offset from UTC in microseconds, if it is constant."""
    if zone in _UTC:
        return 0
    fixed = _FIXED.fullmatch(zone)
    if fixed is None:
        return None
    micros = (int(fixed[2]) * 60 + int(fixed[3])) * 60_000_000
    return -micros if fixed[1] == "-" else micros


def parts_of(term: Term) -> list[Term]:
    """A term and all terms in it."""
    found: list[Term] = []

    def look(inner: Term) -> Term:
        found.append(inner)
        return rebuilt(inner, look)

    look(term)
    return found


def _moved(term: Term, offset: int) -> Term:
    """The term with the zone's offset in all calls that depend on it."""
    found = rebuilt(term, lambda t: _moved(t, offset))
    return replace(found, options=(offset,)) if isinstance(found, Call) and found.function in _ZONED else found


def _mapped(value: Part, rule: Callable[[Expression], Expression]) -> Part:
    """The same object with all expressions in it mapped by the rule."""
    if isinstance(value, Expression):
        return rule(value)  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(_mapped(v, rule) for v in value)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: getattr(value, f.name) for f in fields(value)}
        other = {name: _mapped(v, rule) for name, v in found.items()}
        changed = {name: v for name, v in other.items() if v is not found[name] and v != found[name]}
        return replace(value, **changed) if changed else value
    return value
