"""Values as the record of a step gives them back."""

from __future__ import annotations

import json

import msgspec


def recorded(value, kind=None):
    """A value after it was written and read; `kind` is its type, if it is not that of a struct."""
    plain = json.loads(json.dumps(msgspec.to_builtins(value, str_keys=True), allow_nan=False))
    return msgspec.convert(plain, kind or type(value), str_keys=True)
