"""What a stream is: columns, event time, how far behind it may run, and what happens to rows that break the rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.model.secrets import masked, withheld

INTEGER_TYPES = frozenset({"tinyint", "smallint", "int", "bigint"})
TIME_TYPES = frozenset({"timestamp", "timestamp_ntz", "date"})
ORDERED_TYPES = INTEGER_TYPES | TIME_TYPES | {"float", "double", "boolean", "string", "binary"}
POLICIES = ("side", "drop", "error")
SIDE_RETAIN = 7 * 86_400_000_000


@dataclass(frozen=True)
class Column:
    """A declared column; `type` is Spark's simple type name, e.g. `bigint` or `decimal(10,2)`."""

    name: str
    type: str

    @property
    def orderable(self) -> bool:
        """True if two different values always have an order; not so for nested types, and strings with a collation.

        A type that only Spark knows (of a computed column of another query, while a script is checked without it) passes.
        """
        return not self.type or self.type in ORDERED_TYPES or self.type.startswith(("decimal(", "char(", "varchar("))


@dataclass(frozen=True, repr=False)
class Reader:
    """Where a stream declared in SQL is read from: a Spark format and its options."""

    format: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def stored(self) -> Reader:
        """As the registry has it: without secrets that are given literally."""
        return Reader(self.format, withheld(self.options))

    def __repr__(self) -> str:
        """What people are shown; a secret is none of it."""
        return f"{self.format} with the options {dict(masked(self.options))}"


@dataclass(frozen=True)
class Stream:
    """A registered stream. Lengths (`delay`, `idle`, `idle_skew`, `heartbeat`) are in units of its event time.

    Progress is the greatest of the bounds it has: the newest time less `delay`; the newest time of all but the last
    `delay_rows` rows by its sequence; punctuations, as rows with a value in the column `punctuation` that the columns `patterns` narrow,
    or from elsewhere (the stream `punctuated_by`, or a DataFrame) with the columns `patterns`; the clock less `idle` while it is silent; the clock less `heartbeat`
    at each step, if it promises that a row is read no later than that after its event time. `side_retain` are the microseconds of
    the clock for which late and bad rows are kept (None: for ever); it may change over restarts.
    """

    name: str
    columns: tuple[Column, ...]
    event_time: str
    delay: int | None
    late: str = "side"
    bad: str = "side"
    idle: int | None = None
    idle_skew: int = 3_600_000_000
    sequence: str | None = None
    source: Reader | None = field(default=None)
    delay_rows: int | None = None
    punctuation: str | None = None
    punctuated_by: str | None = None
    patterns: tuple[Column, ...] = ()
    heartbeat: int | None = None
    side_retain: int | None = SIDE_RETAIN

    @property
    def stored(self) -> Stream:
        """As the registry has it: without secrets that are given literally."""
        return self if self.source is None else replace(self, source=self.source.stored)

    def same(self, other: Stream) -> bool:
        """Whether both are declared alike in all that state depends on: not in secrets, nor in how long late rows are kept."""
        return self._lasting() == other._lasting()

    def _lasting(self) -> Stream:
        source = None if self.source is None else Reader(self.source.format, masked(self.source.options))
        return replace(self, source=source, side_retain=None)

    def column(self, name: str) -> Column | None:
        """The column of that name, whatever its case, as in Spark SQL."""
        return next((c for c in self.columns if c.name.lower() == name.lower()), None)

    @property
    def punctuated(self) -> bool:
        """True if some of its rows, or of another source's, are punctuations."""
        return self.punctuation is not None or bool(self.patterns)

    @property
    def integer_time(self) -> bool:
        """True if event time is a plain integer, so that windows carry no unit."""
        column = self.column(self.event_time)
        return column is not None and column.type in INTEGER_TYPES

    @property
    def tiebreak(self) -> str | None:
        """The declared column that orders rows of equal time. Event time itself may be the sequence; it says no more of these."""
        return None if self.sequence == self.event_time else self.sequence

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that order its rows: event time, the sequence, then as declared whatever else can be ordered."""
        others = [c.name for c in self.columns if c.orderable]
        first = [self.event_time, *([self.sequence] if self.sequence is not None else [])]
        return tuple(dict.fromkeys([*first, *others]))
