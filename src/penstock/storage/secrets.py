"""The values that options refer to, resolved when used; and texts without secrets, for display."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from penstock.errors import PenstockError
from penstock.model.secrets import REFERENCE, WITHHELD, Options, literal_secrets


def resolved(options: Options, what: str) -> dict[str, str]:
    """The options with resolved references; `what` is their owner, for the error about a missing one."""
    return {name: _resolved(value, f"{what}: option {name!r}") for name, value in options}


def redacted(text: str, options: Options) -> str:
    """A text about something with these options, without their secrets."""
    secrets = {secret for found in literal_secrets(options).values() for secret in found}
    for value in (value for _, value in options if WITHHELD not in value):
        secrets |= {_looked_up(found, "") for found in REFERENCE.finditer(value) if _is_there(found)}
    return _without(text, secrets)


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _resolved(value: str, place: str) -> str:
    if WITHHELD in value:
        msg = (
            f"{place} was given literally, so it was not stored, and this program has not given it; declare it again, "
            "or refer to it as ${ENV:NAME} or ${file:/path}"
        )
        raise PenstockError(msg)
    return REFERENCE.sub(lambda found: _looked_up(found, place), value)


def _looked_up(found: re.Match[str], place: str) -> str:
    if found[3]:
        try:
            return Path(found[4]).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise PenstockError(f"{place} refers to the file {found[4]}, which cannot be read: {why.lower()}") from None
    name = found[2] or found[5]
    value = os.environ.get(name)
    if value is None:
        raise PenstockError(
            f"{place} refers to the environment variable {name}, which is not set; set it before the start"
        )
    return value


def _is_there(found: re.Match[str]) -> bool:
    return Path(found[4]).is_file() if found[3] else (found[2] or found[5]) in os.environ
