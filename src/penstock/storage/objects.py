"""Objects under one prefix of an object store: puts, gets and lists, each one request, with errors in words.

This is all that Penstock asks of S3, Google Cloud Storage and Azure, by the package `obstore`. Credentials come from
the environment, where `obstore` looks for them; they are in no message and in no file.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import pyarrow as pa

from penstock.errors import PenstockError, StateError

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
PIECE = 8 << 20  # bytes of one piece of a large object
WRITER = "penstockwriter"  # the metadata of an object that says who has put it
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_VARIABLES = ("AWS_", "GOOGLE_", "AZURE_")
_URL = re.compile(rf"({'|'.join(SCHEMES)})://[^/]+(/.*)?", re.IGNORECASE)


class ObjectStoreError(StateError):
    """A request failed, or its answer was lost: whether it took effect is not known."""


class Facts(NamedTuple):
    """An object: its length in bytes, and when it was put, in seconds by the clock of the object store."""

    size: int
    modified: float


def is_url(place: str) -> bool:
    """Whether a place is one in an object store."""
    return _URL.fullmatch(place) is not None


@dataclass(eq=False)
class Objects:
    """One prefix. `config` is what the environment does not say, such as `endpoint` and `region`."""

    url: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    client: Any = field(default=None, repr=False)  # by default that of the URL; of tests a store in memory

    def __post_init__(self) -> None:
        self._obstore = _obstore()
        if self.client is None:
            self.client = _opened(self.url, tuple(sorted(self.config.items())), _place_of_process())

    def __reduce__(self) -> tuple[type[Objects], tuple[str, Mapping[str, str]]]:
        if type(self.client).__name__ == "MemoryStore":
            raise TypeError("a store in memory cannot be sent to another process")
        return Objects, (self.url, self.config)  # each process looks for its own credentials

    def create(self, name: str, data: pa.Buffer | bytes, writer: str) -> None:
        """Put an object that is not there yet. Raises FileExistsError, also if an earlier try has put it."""
        self._request("put", name, _bytes(data), mode="create", attributes={WRITER: writer}, use_multipart=False)

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Put an object in place of any other."""
        self._request("put", name, _bytes(data), use_multipart=False)

    def upload(self, name: str, file: Path) -> None:
        """Put a large object in pieces; nothing is there before the last one is."""
        self._request("put", name, file, use_multipart=True, chunk_size=PIECE, max_concurrency=4)

    def get(self, name: str) -> Any:
        """The bytes of an object, as a buffer."""
        return self._request("get", name).bytes()

    def download(self, name: str, file: BinaryIO) -> None:
        """Write the bytes of an object to a file."""
        found = self._request("get", name)
        try:
            file.writelines(found.stream(min_chunk_size=PIECE))
        except self._obstore.exceptions.BaseError as error:
            self._refuse(name, error)

    def writer(self, name: str) -> str | None:
        """Who has put an object; None if nobody has said so."""
        found: str | None = self._request("get", name, options={"head": True}).attributes.get(WRITER)
        return found

    def head(self, name: str) -> Facts:
        return _facts(self._request("head", name))

    def list(self, folder: str) -> tuple[list[str], dict[str, Facts]]:
        """The folders and the objects in a folder."""
        found = self._request("list_with_delimiter", f"{folder}/" if folder else "")
        start = len(folder) + 1 if folder else 0
        folders = [_below(self.client, path)[start:] for path in found["common_prefixes"]]
        return folders, {_below(self.client, o["path"])[start:]: _facts(o) for o in found["objects"]}

    def below(self, folder: str) -> Iterator[str]:
        """All objects in a folder and in those below it."""
        try:
            for page in self._obstore.list(self.client, f"{folder}/" if folder else None):
                for found in page:
                    yield _below(self.client, found["path"])
        except self._obstore.exceptions.BaseError as error:
            self._refuse(folder, error)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects, as far as they are there."""
        try:
            self._obstore.delete(self.client, list(names))
        except FileNotFoundError:
            for name in names if len(names) > 1 else ():
                self.delete([name])
        except self._obstore.exceptions.BaseError as error:
            self._refuse(names[0], error)

    def label(self, name: str) -> str:
        """An object in messages."""
        return f"{self.url}/{name}" if name else self.url

    def _request(self, operation: str, name: str, *given: Any, **options: Any) -> Any:
        exceptions = self._obstore.exceptions
        try:
            return getattr(self._obstore, operation)(self.client, name, *given, **options)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.label(name)) from None
        except exceptions.AlreadyExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.label(name)) from None
        except exceptions.BaseError as error:
            self._refuse(name, error)

    def _refuse(self, name: str, error: Exception) -> NoReturn:
        exceptions = self._obstore.exceptions
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            remedy = "give this program credentials that may read, write, list and delete there"
        else:
            remedy = "see that the object store can be reached from here, and start again"
        raise ObjectStoreError(f"{self.label(name)} cannot be used: {_brief(error)}; {remedy}") from None


def _obstore() -> Any:
    try:
        import obstore  # noqa: PLC0415  (an extra)
        import obstore.exceptions  # noqa: PLC0415
        import obstore.store  # noqa: PLC0415
    except ImportError:
        msg = "object stores need the package obstore, which is not installed: pip install 'penstock[object]'"
        raise PenstockError(msg) from None
    return obstore


def _bytes(data: pa.Buffer | bytes) -> bytes | memoryview:
    return data if isinstance(data, bytes) else memoryview(data).cast("B")


def _place_of_process() -> tuple[object, ...]:
    """What a client depends on beside its URL: the process, and the environment."""
    return os.getpid(), *sorted(item for item in os.environ.items() if item[0].startswith(_VARIABLES))


@lru_cache(maxsize=16)
def _opened(url: str, config: tuple[tuple[str, str], ...], _process: object) -> Any:
    """The client of a process, with its connections, for all tasks that run there one after the other."""
    obstore, known = _obstore(), dict(config)
    endpoint = known.get("endpoint") or next((os.environ[name] for name in _ENDPOINTS if name in os.environ), "")
    options = {"allow_http": True} if endpoint.startswith("http://") else None
    try:
        return obstore.store.from_url(url, config=known, client_options=options)
    except (obstore.exceptions.BaseError, ValueError, TypeError) as error:
        raise StateError(f"{url} cannot be opened: {_brief(error)}") from None


def _below(client: Any, path: str) -> str:
    """A path below the prefix of a client, whether it tells paths with or without it."""
    prefix = str(getattr(client, "prefix", None) or "").strip("/")
    return path.removeprefix(f"{prefix}/") if prefix else path


def _facts(found: Mapping[str, Any]) -> Facts:
    return Facts(found["size"], found["last_modified"].timestamp())


def _brief(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
