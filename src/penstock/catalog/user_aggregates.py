"""Users' own aggregates, checked at their declaration.

None is ever written to the state directory: a program that continues with it declares them again.
"""

from __future__ import annotations

import re

from penstock.columns.types import arrow_type
from penstock.errors import RegistrationError
from penstock.kernels.aggregate.states import Lost, Own
from penstock.model import UserAggregate
from penstock.sql.functions import ANSWERED_AGGREGATES

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_METHODS = ("zero", "add", "merge", "finish")


def checked_aggregate(name: str, function: UserAggregate) -> str:
    """The name in lower case, if the function can be an aggregate."""
    called = name.lower()
    if not _NAME.fullmatch(called):
        raise RegistrationError(f"aggregate {name!r}: a name is letters, digits and underscores")
    if called in ANSWERED_AGGREGATES:
        raise RegistrationError(f"aggregate {name!r} is there already; choose another name")
    missing = [method for method in _METHODS if not callable(getattr(function, method, None))]
    if missing:
        msg = (
            f"aggregate {name!r} lacks {', '.join(missing)}; it needs zero(), add(state, value), merge(left, "
            "right) and finish(state)"
        )
        raise RegistrationError(msg)
    try:
        arrow_type(str(getattr(function, "type", None)))
    except ValueError as error:
        raise RegistrationError(f"aggregate {name!r}: {error} as its attribute `type`") from None
    _check_states(name, function)
    return called


def _check_states(name: str, function: UserAggregate) -> None:
    """Refuse an aggregate whose first state cannot be stored: no later one could."""
    lacking = [method for method in ("encode", "decode") if not callable(getattr(function, method, None))]
    if len(lacking) == 1:
        raise RegistrationError(
            f"aggregate {name!r} lacks {lacking[0]}; it needs both encode(state) and decode(bytes), or none of them"
        )
    kept = Own(name, function)
    try:
        first = function.zero()
    except Exception as error:
        raise RegistrationError(f"aggregate {name!r}: zero() raised {type(error).__name__}: {error}") from error
    again = kept.load(kept.dump(first))
    if isinstance(again, Lost):
        raise RegistrationError(again.why)
