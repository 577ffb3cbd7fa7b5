"""Folders that Penstock reads and writes itself, on a file system of this machine: the accepted forms of paths."""

from __future__ import annotations

import re
from os import PathLike
from urllib.parse import unquote, urlsplit

from penstock.errors import RegistrationError

_URL = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]+):/|(s3[an]?|hdfs|abfss?|wasbs?|gs|dbfs|file|viewfs|https?):", re.IGNORECASE
)


def local_path(given: str | PathLike[str], what: str, remedy: str) -> str:
    """The path of a local folder, also from file:///x. `what` names it, and `remedy` is for other places."""
    text = str(given)
    if _URL.match(text) is None:
        return text
    place = urlsplit(text)
    if place.scheme == "file" and place.netloc in ("", "localhost") and place.path.startswith("/"):
        return "/" + unquote(place.path).lstrip("/")
    msg = f"{what} {text!r} is no folder on this machine, and Penstock writes and reads there itself; {remedy}"
    raise RegistrationError(msg)


def state_path(given: str | PathLike[str]) -> str:
    """The path of a state directory."""
    return local_path(
        given,
        "state directory",
        "give one on a local disk, on a file system that is mounted here, or in an object store (s3://, gs://, az://)",
    )
