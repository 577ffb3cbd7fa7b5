"""Opens the store of a state directory: a path of this machine, or a URL in an object store."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from penstock.storage.cache import cache_of
from penstock.storage.local import LocalStore
from penstock.storage.object import ObjectStore
from penstock.storage.objects import Objects, is_url
from penstock.storage.place import state_path


def open_store(
    given: str | PathLike[str], *, durable: bool = True, storage: Mapping[str, str] | None = None
) -> LocalStore | ObjectStore:
    """`storage` is what the environment does not say of an object store. `durable=False` skips syncs to disk."""
    place = str(given)
    if not is_url(place):
        return LocalStore(str(Path(state_path(given)).absolute()), durable)
    config = dict(storage or {})
    url = place.rstrip("/")
    return ObjectStore(Objects(url, config), cache_of(f"{url} {config.get('endpoint', '')}"))
