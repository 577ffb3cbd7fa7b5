"""A state table: rows of one stream sorted by one key, with one bit per query role that a row serves."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from penstock.model import Ref, Rows, Term, Tumbling
from penstock.model.time import FOREVER, NEVER
from penstock.planner.index import ColumnIndex
from penstock.planner.reached import Clock, Reached

MAX_ROLES = 16
COUNTING = 1 << 48  # added to the id of a role for the bit of all rows that its window counts


@dataclass(frozen=True)
class ComputedColumn:
    """A column computed for each row of a stream before the exchange: by the mapper if it has a term, else by Spark.

    It is `risky` if it may raise.
    """

    name: str
    stream: str
    parts: tuple[str | Ref, ...]
    risky: bool
    term: Term | None = None


@dataclass(frozen=True)
class Entry:
    """One bit of a state table: a query (or those that share its bits) in a role.

    `lives[s]` = how long past its time a row can join stream s. Its predicates are `terms` (column, term), which the
    index decides, and `truths`, which Spark computes. `needs` are the columns that the queries read of a stored row. A
    role with a window that counts rows (`counts`) has a second entry, `counting`, which every row of the stream serves
    as long as it can push another one out. Rows of a window that `tumbles` live at most to the end of their piece of
    time.
    """

    query: int
    role: int
    join: int
    position: int
    lives: tuple[tuple[Clock, int], ...]
    truths: tuple[str, ...]
    terms: tuple[tuple[str, Term], ...] = ()
    needs: frozenset[str] = frozenset()
    counts: Rows | None = None
    counting: bool = False
    tumbles: Tumbling | None = None

    @property
    def id(self) -> int:
        """The permanent id of the query role, as stored with state."""
        return self.query * MAX_ROLES + self.role + (COUNTING if self.counting else 0)

    @property
    def out(self) -> str:
        """The column, never stored, with the time at which each row leaves the role's window."""
        return out_column(self.query, self.position)

    @property
    def life(self) -> int:
        """How long past its time a row can join any other."""
        return max((length for _, length in self.lives), default=0)


@dataclass(frozen=True)
class StateTable:
    """Rows of one stream, sorted by one key; with `timed`, by time alone. With neither it is stateless.

    A stream that is joined by several keys has a table for each; `others` = (column with a row's key in another table,
    its name). `chain` are the ends of its links, ascending: a stored row stays until the end of the link in which its
    own life ends. A `grouped` table serves window aggregates: it has partials (or rows) by group, NULL being a group,
    and without a key all is one group. Rows of a `mapped` table are results where they are read, and go to no task.
    """

    index: int
    name: str
    stream: str
    key: tuple[tuple[str | Ref, ...], ...]
    key_types: tuple[str, ...]
    guards: tuple[str, ...]  # per key part: the computed column that replaces it because it may raise, or ""
    verify: tuple[str, ...]
    entries: tuple[Entry, ...]
    columns: tuple[str, ...]
    indexes: tuple[ColumnIndex, ...]
    sequence: str | None = None  # the declared column that orders rows of equal time
    chain: tuple[int, ...] = ()
    by_cell: bool = False  # rows of different bits never share a run
    timed: bool = False
    others: tuple[tuple[str, str], ...] = ()
    order: tuple[str, ...] = ()  # the columns that order rows, time first, if windows count rows
    grouped: bool = False
    watched: frozenset[str] = frozenset()  # computed predicates that only report whether something raised
    hashed: tuple[str, ...] | None = None  # the columns with the parts of the key; None if Spark hashes it
    mapped: bool = False

    @property
    def counted(self) -> tuple[Entry, ...]:
        """The entries of all rows that the windows of its roles count."""
        return tuple(e for e in self.entries if e.counting)

    @cached_property
    def pieces(self) -> dict[int, Tumbling]:
        """The windows that cut time into pieces, by the id of their role."""
        return {e.id: e.tumbles for e in self.entries if e.tumbles is not None}

    @property
    def stateless(self) -> bool:
        return not self.key and not self.timed and not self.grouped

    @cached_property
    def truths(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Each computed predicate with the entries that require it."""
        wanted: dict[str, list[int]] = {}
        for bit, entry in enumerate(self.entries):
            for truth in entry.truths:
                wanted.setdefault(truth, []).append(bit)
        return tuple((name, tuple(bits)) for name, bits in wanted.items())

    @property
    def plain_key(self) -> str | None:
        """The BIGINT column that is the whole key and is stored as it is: its hash can be computed anywhere."""
        bare = self.key[0][0] if len(self.key) == 1 and len(self.key[0]) == 1 else None
        if not isinstance(bare, Ref) or self.key_types != ("bigint",) or bare.column not in self.needed:
            return None
        return bare.column

    @cached_property
    def needed(self) -> frozenset[str]:
        """The columns that a task needs of each row: to store, to decide predicates, to verify keys."""
        return frozenset({*self.columns, *(i.column for i in self.indexes), *self.verify})

    def horizon(self, entry: Entry, progress: Reached) -> int:
        """Rows serving `entry` with a time at or before this can join no later row."""
        found = [_horizon(life, progress.get(stream, NEVER), entry.tumbles) for stream, life in entry.lives]
        return min(found, default=FOREVER)


def _horizon(life: int, progress: int, tumbles: Tumbling | None) -> int:
    if progress >= FOREVER:
        return FOREVER  # the stream has ended: not even [RANGE ALL] joins a row of it any more
    if life >= FOREVER or progress <= NEVER:
        return NEVER
    return progress - life if tumbles is None else max(progress - life, tumbles.start(progress) - 1)


def out_column(share: int, position: int) -> str:
    return f"_out{share}:{position}"


def key_column(table: str) -> str:
    """The name of the column with a row's key in this table, in other state tables of the stream."""
    return "_k" + hashlib.sha256(table.encode()).hexdigest()[:12]
