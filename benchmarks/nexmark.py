"""NEXMark in one engine: the events from a seed, the queries of `nexmark.sql`, and DuckDB's answers.

Of fifty events one is a person, three are auctions and 46 are bids. Events are up to two seconds out of order, as much
as the streams allow, so no row is late, and the whole run covers three minutes of event time however many steps it has.
The command compares all answers; it measures nothing.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import command, harness
from benchmarks.command import CORES
from benchmarks.harness import Json, Report, say

SECOND = 1_000_000
BEGIN = 1_700_074_710 * SECOND  # 18:58:30, so that the hour changes under way
DISORDER = 2 * SECOND
STREAMS = ("person", "auction", "bid")
OF_FIFTY = {"person": 1, "auction": 3, "bid": 46}
FIRST_ID = 1000
ACTIVE = 1000  # people who take part at a time
OPEN = 100  # auctions that are bid for at a time
HOT = 100  # one in so many people and auctions is popular
CATEGORIES = range(10, 15)
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
OTHER_CHANNELS = 10_000
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
HERE = Path(__file__).parent


# -- the events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Events:
    """So many events in each step; all steps together cover `seconds` of event time."""

    step: int = 200_000
    steps: int = 8
    seed: int = 1
    seconds: int = 180

    def folder(self) -> Path:
        """A folder for each stream, with one file of each step."""

        def make(folder: Path) -> None:
            for stream in STREAMS:
                (folder / stream).mkdir(parents=True)
            for number in range(self.steps):
                for stream, table in self.tables(number).items():
                    path = folder / stream / f"{number:05d}.parquet"
                    pq.write_table(table, path)
                    os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads files by age

        return harness.cached("nexmark", self.__dict__, make)

    def tables(self, number: int) -> dict[str, pa.Table]:
        """The rows of a step, by stream; earlier events are only counted."""
        draw = np.random.default_rng((self.seed, number))
        events = np.arange(number * self.step, (number + 1) * self.step)
        place = events % 50
        mine = {"person": place == 0, "auction": (place >= 1) & (place <= 3), "bid": place > 3}
        pace = self.seconds * SECOND / (self.step * self.steps)
        times = BEGIN + (events * pace).astype(np.int64) - draw.integers(0, DISORDER, len(events))
        make = {"person": _people, "auction": _auctions, "bid": _bids}
        return {stream: make[stream](draw, events[mine[stream]], times[mine[stream]]) for stream in STREAMS}


def _people(draw: np.random.Generator, events: np.ndarray, times: np.ndarray) -> pa.Table:
    count = len(events)
    first, last = _one_of(draw, FIRST_NAMES, count), _one_of(draw, LAST_NAMES, count)
    card = draw.integers(0, 10**16, count)
    return pa.table(
        {
            "id": pa.array(FIRST_ID + events // 50),
            "name": _joined(first, " ", last),
            "email_address": _joined(_words(draw, count, 7), "@", _words(draw, count, 5), ".com"),
            "credit_card": pa.array(
                [
                    f"{n // 10**12:04d} {n // 10**8 % 10**4:04d} {n // 10**4 % 10**4:04d} {n % 10**4:04d}"
                    for n in card.tolist()
                ]
            ),
            "city": _one_of(draw, CITIES, count),
            "state": _one_of(draw, STATES, count),
            "date_time": _times(times),
            "extra": _words(draw, count, 40, 100),
        }
    )


def _auctions(draw: np.random.Generator, events: np.ndarray, times: np.ndarray) -> pa.Table:
    count = len(events)
    start = _price(draw, count)
    return pa.table({
        "id": pa.array(FIRST_ID + events // 50 * 3 + events % 50 - 1),
        "item_name": _words(draw, count, 5, 20),
        "description": _words(draw, count, 20, 100),
        "initial_bid": pa.array(start),
        "reserve": pa.array(start + _price(draw, count)),
        "date_time": _times(times),
        "expires": _times(times + draw.integers(1, 30 * SECOND, count)),
        "seller": pa.array(_person(draw, events, hot=0.75, known=0)),
        "category": pa.array(draw.choice(CATEGORIES, count)),
        "extra": _words(draw, count, 100, 300),
    })  # fmt: skip


def _bids(draw: np.random.Generator, events: np.ndarray, times: np.ndarray) -> pa.Table:
    count = len(events)
    newest = events // 50 * 3 + 2
    some = np.maximum(0, newest - draw.integers(0, OPEN, count))
    auction = np.where(draw.random(count) < 0.5, newest // HOT * HOT, some)
    known, other = draw.random(count) < 0.5, draw.integers(0, OTHER_CHANNELS, count)
    names = pa.array([*CHANNELS, *(f"channel-{n}" for n in range(OTHER_CHANNELS))])
    channel = names.take(pa.array(np.where(known, other % len(CHANNELS), other + len(CHANNELS))))
    # Most addresses of other channels say their number.
    told = pa.array(["", *(f"&channel_id={n * 7919 % 2**27}" for n in range(OTHER_CHANNELS))])
    number = told.take(pa.array(np.where(known | (draw.random(count) < 0.1), 0, other + 1)))
    folders = [_words(draw, count, 3, 8) for _ in range(3)]
    return pa.table(
        {
            "auction": pa.array(FIRST_ID + auction),
            "bidder": pa.array(_person(draw, events, hot=0.75, known=1)),
            "price": pa.array(_price(draw, count)),
            "channel": channel,
            "url": _joined(
                "https://www.nexmark.com/", folders[0], "/", folders[1], "/", folders[2], "/item.htm?query=1", number
            ),
            "date_time": _times(times),
            "extra": _words(draw, count, 20, 60),
        }
    )


def _person(draw: np.random.Generator, events: np.ndarray, *, hot: float, known: int) -> np.ndarray:
    """A popular person, or one of the newest."""
    newest = events // 50
    some = np.maximum(0, newest - draw.integers(0, ACTIVE, len(events)))
    found = FIRST_ID + np.where(draw.random(len(events)) < hot, np.minimum(newest, newest // HOT * HOT + known), some)
    return np.asarray(found)


def _price(draw: np.random.Generator, count: int) -> np.ndarray:
    return np.asarray(np.round(10 ** (6 * draw.random(count)) * 100).astype(np.int64))


def _times(micros: np.ndarray) -> pa.Array:
    return pa.array(micros).cast(pa.timestamp("us", tz="UTC"))


def _one_of(draw: np.random.Generator, values: tuple[str, ...], count: int) -> pa.Array:
    return pa.array(values).take(pa.array(draw.integers(0, len(values), count)))


def _words(draw: np.random.Generator, count: int, least: int, most: int | None = None) -> pa.Array:
    """Random small letters, from `least` to `most` of them."""
    lengths = np.full(count, least) if most is None else draw.integers(least, most + 1, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    letters = LETTERS[draw.integers(0, len(LETTERS), int(offsets[-1]), dtype=np.uint8)]
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


# -- the queries ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A query: its CREATE QUERY, whether Spark's own streaming queries can answer it, and the query for DuckDB."""

    name: str
    sql: str
    native: bool
    duckdb: str


def queries() -> dict[str, Asked]:
    """All queries by their names, in an order in which they can be registered."""
    ours, theirs = sections("nexmark.sql"), sections("nexmark_duckdb.sql")
    return {
        name: Asked(name, sql, head.split(":")[1].strip() == "both", theirs[name][1])
        for name, (head, sql) in ours.items()
    }


def streams(inputs: Path) -> str:
    """The declarations of the three streams over these files."""
    text = (HERE / "nexmark.sql").read_text()
    return text[text.index("CREATE STREAM") : text.index("-- q")].replace("{inputs}", str(inputs))


def sections(file: str) -> dict[str, tuple[str, str]]:
    """The statements of a file by the number above them, each with the line of the number."""
    parts = re.split(r"^-- (?=q\d)", (HERE / file).read_text(), flags=re.MULTILINE)[1:]
    heads = [part.split("\n", 1) for part in parts]
    return {re.split(r"\W", head)[0]: (head, sql.strip().removesuffix(";")) for head, sql in heads}


# -- the check --------------------------------------------------------------------------------------------------------


class Answer:
    """DuckDB's answers over all files of a folder, each computed on first use."""

    def __init__(self, inputs: Path) -> None:
        self.base = duckdb.connect()
        self.base.execute("SET TimeZone = 'UTC'")
        for stream in STREAMS:
            files = f"SELECT *, epoch_us(date_time) AS t FROM '{inputs}/{stream}/*.parquet'"
            self.base.execute(f"CREATE TABLE {stream} AS {files}")

    def differences(self, asked: Asked, found: pa.Table, shown: int = 5) -> list[str]:
        """The first rows that only one of both has; none if `found` is the answer, as a bag."""
        plain = [_plain(column) for column in found.columns]
        names = [f"c{number}" for number in range(len(plain))]
        self.base.register("found", pa.table(plain, names=names))
        self.base.execute(f"CREATE OR REPLACE TEMP TABLE wanted AS FROM ({asked.duckdb}) AS w({', '.join(names)})")
        lines = []
        for what, one, other in (("missing", "wanted", "found"), ("not expected", "found", "wanted")):
            sql = f"SELECT * FROM (FROM {one} EXCEPT ALL FROM {other}) ORDER BY ALL LIMIT {shown}"
            lines += [f"{asked.name}: {what} {row}" for row in self.base.execute(sql).fetchall()]
        self.base.unregister("found")
        return lines

    def rows(self, asked: Asked) -> int:
        ((count,),) = self.base.execute(f"SELECT count(*) FROM ({asked.duckdb})").fetchall()
        return int(count)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as microseconds."""
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())


def register(engine: Any, inputs: Path, asked: Mapping[str, Asked]) -> None:
    """Declare the streams over these files, and the queries."""
    engine.execute(streams(inputs))
    for one in asked.values():
        engine.execute(one.sql)


def compare(engine: Any, answer: Answer, asked: Mapping[str, Asked]) -> dict[str, list[str]]:
    """By query the rows that differ."""
    return {name: answer.differences(one, engine.results(name).toArrow()) for name, one in asked.items()}


def measure(events: Events, cores: int, asked: Mapping[str, Asked]) -> Report:
    from penstock import Engine

    load, inputs = harness.load(), events.folder()
    with harness.scratch() as folder:
        engine = Engine(harness.session(cores), folder / "state", durable=False)
        register(engine, inputs, asked)
        engine.start(available_now=True, final=True).await_termination()
        answer = Answer(inputs)
        different = compare(engine, answer, asked)
        late = sum(engine.manifest().counters.stream(name).late for name in STREAMS)
    for lines in different.values():
        for line in lines:
            say(line)
    figures: Json = {
        "events": events.step * events.steps,
        "steps": events.steps,
        "late": late,
        "rows": {name: answer.rows(one) for name, one in asked.items()},
        "different": [name for name, lines in different.items() if lines],
        "machine": harness.machine(load),
    }
    return Report("nexmark", not late and not any(different.values()), {}, figures)


def describe(report: Report) -> str:
    wrong = report.figures["different"]
    rows = [[name, f"{rows:,}", "no" if name in wrong else "yes"] for name, rows in report.figures["rows"].items()]
    return harness.table(["query", "rows", "equal"], rows)


SIZES = {
    "events": (20_000, "events of a step"),
    "steps": (Events.steps, "steps, and files of each stream"),
    "seed": (Events.seed, "of the events"),
    **CORES,
}


def measured(options: Namespace) -> Report:
    step = Events.step if options.all else options.events
    return measure(Events(step, options.steps, options.seed), options.cores, queries())


def main(arguments: list[str] | None = None) -> int:
    more = f"{Events.step:,} events of a step"
    return command.run(
        "nexmark", __doc__, measured, everything=more, sizes=SIZES, describe=describe, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
