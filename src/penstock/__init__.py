"""Penstock: many standing window queries over the same live streams, answered exactly from one shared state.

Importing this package does not import Spark; `Engine` is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    NotSupportedError,
    PenstockError,
    RegistrationError,
    SessionError,
    SqlError,
    StateError,
    StepError,
)
from penstock.model import Sink

if TYPE_CHECKING:
    from penstock.engine import Engine
    from penstock.handle import QueryHandle
    from penstock.run import Run

__version__ = "0.1.0"

__all__ = [
    "Engine", "NotSupportedError", "PenstockError", "QueryHandle", "RegistrationError", "Run", "SessionError",
    "Sink", "SqlError", "StateError", "StepError",
]  # fmt: skip

_LAZY = {"Engine": "penstock.engine", "QueryHandle": "penstock.handle", "Run": "penstock.run"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)  # lazy: keeps Spark out of `import penstock`
    msg = f"module 'penstock' has no attribute {name!r}"
    raise AttributeError(msg)
