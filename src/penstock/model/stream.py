"""What a stream is: columns, event time, how late its rows may be, and what happens to invalid rows."""

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
        """Whether two different values always have an order: not for nested types, nor for strings with a collation.

        A type that only Spark knows (of another query's computed column, when a script is checked without Spark)
        passes.
        """
        return not self.type or self.type in ORDERED_TYPES or self.type.startswith(("decimal(", "char(", "varchar("))


@dataclass(frozen=True, repr=False)
class Reader:
    """The Spark format and options that a stream declared in SQL is read with."""

    format: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def stored(self) -> Reader:
        """As registered: without literal secrets."""
        return Reader(self.format, withheld(self.options))

    def __repr__(self) -> str:
        """What users are shown, without secrets."""
        return f"{self.format} with the options {dict(masked(self.options))}"


@dataclass(frozen=True)
class Stream:
    """A registered stream. Lengths (`delay`, `idle`, `idle_skew`, `heartbeat`) are in units of its event time.

    Progress (the watermark) is the greatest of its bounds: the newest time less `delay`; the newest time of all but the
    last `delay_rows` rows by its sequence; punctuations, which are rows with a value in the column `punctuation` that
    the columns `patterns` narrow, or rows from elsewhere (the stream `punctuated_by`, or a DataFrame) with the columns
    `patterns`; the clock less `idle` while the stream is idle; the clock less `heartbeat` at each step, if it promises
    that a row is read at most that long after its event time. `side_retain` is how long, in microseconds of the clock,
    late and invalid rows are kept (None: for ever); it may change over restarts.
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
        """As registered: without literal secrets."""
        return self if self.source is None else replace(self, source=self.source.stored)

    def same(self, other: Stream) -> bool:
        """Whether both declare the same state: apart from secrets and from how long late rows are kept."""
        return self._lasting() == other._lasting()

    def _lasting(self) -> Stream:
        source = None if self.source is None else Reader(self.source.format, masked(self.source.options))
        return replace(self, source=source, side_retain=None)

    def column(self, name: str) -> Column | None:
        """The column of that name, ignoring case, as in Spark SQL."""
        return next((c for c in self.columns if c.name.lower() == name.lower()), None)

    @property
    def punctuated(self) -> bool:
        """Whether some of its rows, or of another source's, are punctuations."""
        return self.punctuation is not None or bool(self.patterns)

    @property
    def integer_time(self) -> bool:
        """Whether event time is a plain integer, so that windows have no unit."""
        column = self.column(self.event_time)
        return column is not None and column.type in INTEGER_TYPES

    @property
    def tiebreak(self) -> str | None:
        """The declared column that orders rows of equal time; None if event time itself is the sequence."""
        return None if self.sequence == self.event_time else self.sequence

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that order its rows: event time, the sequence, then all other orderable columns as declared."""
        others = [c.name for c in self.columns if c.orderable]
        first = [self.event_time, *([self.sequence] if self.sequence is not None else [])]
        return tuple(dict.fromkeys([*first, *others]))
