"""A log: numbered records in a folder, each sealed, and put only once.

The owner of a log defines its records and their meaning. Snapshots, which summarize all records up to theirs, are
another log in the same folder, under a prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.storage.seal import load, numbers, seal
from penstock.storage.store import Store

Record = TypeVar("Record")


@dataclass(frozen=True)
class Log(Generic[Record]):
    """`key` is the field of a record with its number, which names have with at least `digits` digits."""

    store: Store
    folder: str
    key: str
    encode: Callable[[Record], dict[str, Any]]
    decode: Callable[[dict[str, Any]], Record]
    digits: int = 8
    prefix: str = ""

    def name(self, number: int) -> str:
        return f"{self.folder}/{self.prefix}{number:0{self.digits}d}.json"

    def label(self, number: int) -> str:
        """A record in messages."""
        return self.store.label(self.name(number))

    def numbers(self) -> list[int]:
        """The numbers of the existing records, in order."""
        return numbers(self.store.names(self.folder), self.digits, self.prefix)

    def read(self, number: int) -> Record:
        """A record; raises FileNotFoundError, and StateError if it is not what was put."""
        return self.sized(number)[0]

    def sized(self, number: int) -> tuple[Record, int]:
        """The same with the length of its file in bytes."""
        data = self.store.read(self.name(number))
        return load(data, self.label(number), self.decode, **{self.key: number}), len(data)

    def newest(self) -> Record | None:
        """The last record, while others may add and delete records; None if there is none."""
        found = self.newest_sized()
        return None if found is None else found[0]

    def newest_sized(self) -> tuple[Record, int] | None:
        """The same with the length of its file in bytes."""
        while known := self.numbers():
            try:
                return self.sized(known[-1])
            except FileNotFoundError:
                continue  # it was deleted since it was listed, so there is a later one
        return None

    def put(self, record: Record) -> int:
        """Add a record; returns the length of its file in bytes, or 0, with nothing added, if there is one already."""
        data = self.sealed(record)
        return len(data) if self.store.put_if_absent(self.name(self.encode(record)[self.key]), data) else 0

    def sealed(self, record: Record) -> bytes:
        """The content of its file."""
        return seal(self.encode(record))

    def delete(self, number: int) -> None:
        """Delete a record that is no longer needed."""
        self.store.delete(self.name(number))
