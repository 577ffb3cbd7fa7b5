"""A log: numbered records in a folder, each sealed and put once, whoever puts it first.

What a record says, and what follows from all of them, is for who keeps the log. Snapshots, which stand for all records up to theirs, are
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
    """`key` is the field of a record that holds its number, which is written with at least so many `digits`."""

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
        """What messages call a record."""
        return self.store.label(self.name(number))

    def numbers(self) -> list[int]:
        """The numbers of the records that are there, in order."""
        return numbers(self.store.names(self.folder), self.digits, self.prefix)

    def read(self, number: int) -> Record:
        """A record; raises FileNotFoundError, and StateError if it is not what was put."""
        return load(self.store, self.name(number), self.decode, **{self.key: number})

    def newest(self) -> Record | None:
        """The last record, while others may add some and give old ones up; None if there is none."""
        while known := self.numbers():
            try:
                return self.read(known[-1])
            except FileNotFoundError:
                continue  # it was given up since it was listed, so there is a later one
        return None

    def put(self, record: Record) -> bool:
        """Add a record; False, and nothing added, if somebody has put one of that number."""
        body = self.encode(record)
        return self.store.put_if_absent(self.name(body[self.key]), seal(body))

    def delete(self, number: int) -> None:
        """Give a record up, which nobody needs any longer."""
        self.store.delete(self.name(number))
