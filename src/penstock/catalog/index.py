"""The queries of a registry by name and number, and their readers; it follows a growing registry incrementally."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from penstock.state.registry import QueryRecord

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Index:
    """`names` are those of the queries that users have registered, by their lower case."""

    queries: tuple[QueryRecord, ...] = ()
    numbers: dict[int, QueryRecord] = field(default_factory=dict)
    live: dict[str, QueryRecord] = field(default_factory=dict)
    names: dict[str, dict[str, None]] = field(default_factory=dict)
    readers: dict[str, list[str]] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)  # names in lower case that are not plain words

    def of(self, queries: tuple[QueryRecord, ...]) -> Index:
        """The index of these queries; this one must not be used any more."""
        if queries is self.queries:
            return self
        grown = queries[: len(self.queries)] == self.queries
        found = replace(self, queries=queries) if grown else Index(queries)
        for record in queries[len(self.queries) :] if grown else queries:
            found.add(record)
        return found

    def named_in(self, text: str) -> Iterator[str]:
        """The names that a text may contain; a name with other characters than words have may be anywhere in it."""
        text = text.lower()
        words = set(_WORD.findall(text))
        for name in words & self.names.keys():
            yield from self.names[name]
        for name in self.odd:
            if name in text:
                yield from self.names[name]

    def add(self, record: QueryRecord) -> None:
        self.numbers[record.id] = record
        if record.dropped:
            return
        self.live[record.name] = record
        if record.owner is None:
            name = record.name.lower()
            if name not in self.names and _WORD.fullmatch(name) is None:
                self.odd.append(name)
            self.names.setdefault(name, {})[record.name] = None
        for name in {reading.query for reading in record.reads} - {record.name}:
            self.readers.setdefault(name, []).append(record.owner or record.name)
