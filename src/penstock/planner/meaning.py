"""What terms mean under the SQL settings of a state directory: the session's time zone, and whether Spark raises (ANSI mode).

Terms are made for UTC and ANSI mode. In a zone at a fixed distance from UTC they are told the distance; in any other zone what depends on it
is left to Spark. Without ANSI mode all that computes is: Spark has other casts then, and wraps around where it would raise.
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
    """The query, with the terms only that say under these settings what Spark says."""
    if _is_usual(settings):
        return query

    def settle(expression: Expression) -> Expression:
        return (
            expression if expression.term is None else replace(expression, term=settled_term(expression.term, settings))
        )

    return _mapped(query, settle)


def settled_term(term: Term, settings: Mapping[str, str]) -> Term | None:
    """The term that says under these settings what Spark says; None if there is none."""
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
    """How many microseconds a zone is ahead of UTC, if that is always the same."""
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
    """The term with the distance of the zone wherever it is asked for."""
    found = rebuilt(term, lambda t: _moved(t, offset))
    return replace(found, options=(offset,)) if isinstance(found, Call) and found.function in _ZONED else found


def _mapped(value: Part, rule: Callable[[Expression], Expression]) -> Part:
    """The same with other expressions, wherever they are in it."""
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
