"""Passwords among the options of sinks, streams and sources: which options they are, and how options look without them.

A secret is literal or a reference: `${NAME}` or `${ENV:NAME}` to an environment variable, `${file:/path}` to the
content of a file. References are stored as written. A literal secret is never stored: `${withheld}` replaces it, and
the program supplies it again when it repeats the declaration. `storage.secrets` resolves references.
"""

from __future__ import annotations

import re
from collections.abc import Callable

WITHHELD = "${withheld}"
REFERENCE = re.compile(r"\$\{(?:(ENV|env):([A-Za-z_]\w*)|(file):([^}]+)|([A-Za-z_]\w*))\}", re.ASCII)

Options = tuple[tuple[str, str], ...]

_NAMES = re.compile(
    r"pass(word|wd|phrase)|(?<![a-z])pwd|secret|credential|jaas|(?<![a-z])tokens?(?![a-z])|"
    r"(access|api|private|account|shared|auth|keystore)[._-]?key|(^|[._-])key$",
    re.IGNORECASE,
)
# Options that address a system.
_PLACES = re.compile(r"ur[il]|dsn|conn|server|endpoint|host", re.IGNORECASE)
_USER = r"(?:\$\{[^}]*\}|[^/?#\s:@$]|\$(?!\{))*+"
_IN_URL = re.compile(rf"(://{_USER}:)(?!\d+[/?#])(\S+)(?=@)|(^jdbc:oracle:\w+:{_USER}/)([^\s@]+)(?=@)")
_IN_PAIRS = re.compile(
    r"((?:passw(?:or)?d|pwd|passphrase|secret|token|credential|sig|(?:access|account|api|shared\w*)[._-]?key)\s*=\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s;&\"']+)",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether an option of this name holds a secret."""
    return _NAMES.search(name) is not None


def withheld(options: Options) -> Options:
    """The options as stored: references as written, `WITHHELD` for each literal secret."""
    return tuple(
        (name, _replaced(name, value, lambda part: part if _refers(part) else WITHHELD)) for name, value in options
    )


def masked(options: Options) -> Options:
    """The options without secrets, literal or referenced: what distinguishes two declarations."""
    return tuple((name, _replaced(name, value, lambda _: "***")) for name, value in options)


def literal_secrets(options: Options) -> dict[str, list[str]]:
    """The literal secrets of options, by option."""
    found: dict[str, list[str]] = {}

    def note(name: str) -> Callable[[str], str]:
        def noted(part: str) -> str:
            if not _refers(part):
                found.setdefault(name, []).append(part)
            return part

        return noted

    for name, value in options:
        _replaced(name, value, note(name))
    return found


def is_withheld(options: Options) -> bool:
    """Whether some secret of these options was withheld and is unknown."""
    return any(WITHHELD in value for _, value in options)


def _refers(part: str) -> bool:
    return REFERENCE.search(part) is not None


def _replaced(name: str, value: str, instead: Callable[[str], str]) -> str:
    """The value with all of its secrets replaced."""
    if is_secret(name) and not _PLACES.search(name):
        return instead(value) if value else value
    if "://" in value or value.startswith("jdbc:") or _PLACES.search(name):
        value = _IN_URL.sub(lambda m: (m[1] or m[3]) + instead(m[2] or m[4]), value)
        value = _IN_PAIRS.sub(lambda m: m[1] + instead(m[2]), value)
    return value
