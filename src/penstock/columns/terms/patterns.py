"""LIKE, and those regular expressions that mean the same to Java and to RE2.

These are sequences and alternatives of characters, classes and groups in which only characters and classes repeat: for
them both engines find the leftmost match, and among several there the one that prefers what is written first. `$`, word
boundaries, back references and repeated groups are excluded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from penstock.columns.terms.strings import _truths, _whole
from penstock.columns.terms.values import Flags, Values
from penstock.model import Call

Outcome = tuple[Any, Flags | None]

_PLAIN = r"[A-Za-z0-9 _\-=&/:;,@%#~\"'<>!`]"
_ESCAPED = r"\\[.^$|?*+()\[\]{}\\/\-]"
_KIND = r"\\[dw]"
_IN_CLASS = rf"(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 _=/:;,@%#~\"'<>!`.$|?*+(){{}}]|&(?!&)|{_ESCAPED}|{_KIND})"
_CLASS = rf"\[\^?{_IN_CLASS}+\]"
_REPEAT = r"(?:[*+?]|\{[0-9]{1,2}(?:,(?:[0-9]{1,2})?)?\})\??"
_TOKEN = re.compile(
    rf"(?P<one>{_PLAIN}|{_ESCAPED}|{_KIND}|{_CLASS}|(?P<dot>\.))(?P<repeat>{_REPEAT})?"
    r"|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<other>[|^])"
)
_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"


def translated(pattern: str) -> tuple[str, int] | None:
    """A Java pattern in RE2's syntax with all groups named, and their number; None if RE2 might read it otherwise."""
    written, groups, depth, place = "", 0, 0, 0
    while place < len(pattern):
        token = _TOKEN.match(pattern, place)
        if token is None:
            return None
        place = token.end()
        if token["open"]:
            depth += 1
            groups += token["open"] == "("
            written += f"(?P<g{groups}>" if token["open"] == "(" else "(?:"
        elif token["close"]:
            depth -= 1
            if depth < 0 or pattern[place : place + 1] in tuple("*+?{"):
                return None
            written += ")"
        elif token["other"]:
            if pattern[place : place + 1] in tuple("*+?{"):
                return None
            written += token["other"]
        else:
            if pattern[place : place + 1] in tuple("*+?{"):  # possessive
                return None
            if not _ordered(token["one"], token["repeat"] or ""):
                return None
            written += (_DOT if token["dot"] else token["one"]) + (token["repeat"] or "")
    return None if depth else (written, groups)


def _ordered(one: str, repeat: str) -> bool:
    """Whether ranges in a class and bounds of a repetition ascend; else both engines reject the pattern."""
    ranges = re.findall(r"(?<!\\)([A-Za-z0-9])-([A-Za-z0-9])", one) if one.startswith("[") else []
    bounds = re.fullmatch(r"\{(\d+),(\d+)\}\??", repeat)
    return all(a <= b for a, b in ranges) and (bounds is None or int(bounds[1]) <= int(bounds[2]))


def like(call: Call, arguments: Sequence[Values]) -> Outcome:
    return _truths(pc.match_like(_whole(arguments[0]), str(call.options[0]))), None


def matches(call: Call, arguments: Sequence[Values]) -> Outcome:
    return _truths(pc.match_substring_regex(_whole(arguments[0]), _known(call)[0])), None


def extracted(call: Call, arguments: Sequence[Values]) -> Outcome:
    """A group of the first match, '' without a match; group 0 is the match itself."""
    pattern, group = f"(?P<g0>{_known(call)[0]})", f"g{call.options[1]}"
    found = pc.extract_regex(_whole(arguments[0]), pattern)
    return pc.fill_null(pc.struct_field(found, group), ""), None


def _known(call: Call) -> tuple[str, int]:
    found = translated(str(call.options[0]))
    assert found is not None, "a pattern that is translated where it is read"
    return found


FUNCTIONS = {"like": like, "rlike": matches, "regexp_extract": extracted}
