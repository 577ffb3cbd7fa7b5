"""What the crash tests run: two streams, queries of each kind, and sinks that show every delivery."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq

from penstock import Engine
from penstock.model.time import SECOND
from penstock.reference import Row
from tests.effort import ALL
from tests.named import evaluate
from tests.oracle import bag
from tests.spark.replay import Replay, rows_of, stream, values_of

STATE = "PENSTOCK_TEST_STATE"  # a variable with the place of the state
STREAMS = (
    stream("a", "ts timestamp, k bigint, v bigint", delay=SECOND),
    stream("b", "ts timestamp, k bigint, v bigint"),
)
JOIN = "FROM a [RANGE 3 SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k"
QUERIES = {
    "kept": f"SELECT a.ts, a.v, b.v AS w, result_time {JOIN}",
    "to_folder": f"SELECT a.v, b.v AS w {JOIN} AND a.v > 2",
    "to_function": f"SELECT a.v, b.ts {JOIN}",
    "by_spark": f"SELECT a.v, concat('b', b.v) AS w {JOIN} AND levenshtein(concat('x', a.v), concat('x', b.v)) < 2",
    "alone": "SELECT v FROM b WHERE v > 1",
    "mapped": "SELECT v, v IS NULL AS none, ts FROM b WHERE v > 1",
    "closed": "SELECT k, window_end, count(*) AS n, sum(v) AS s FROM a [TUMBLING 2 SECONDS] GROUP BY k",
    "counted": "SELECT window_end AS upto, count(*) AS n, sum(w) AS s FROM kept [RANGE 2 SECONDS SLIDE 1 SECOND ON ts]",
    "above": "SELECT window_end, max(s) AS m FROM counted [TUMBLING 3 SECONDS]",
    "ticked": "SELECT window_end, count(*) AS n "
    "FROM a [RANGE 3 SECONDS SLIDE 2 SECONDS], b [RANGE 2 SECONDS SLIDE 2 SECONDS] "
    "WHERE a.k = b.k",
}
# Windows of every kind over the streams themselves, emitted at once, capped, and early; a few of them unless there
# is time.
_KINDS = {
    "windows": "SELECT k, window_end, count(*) AS n, sum(v) AS s FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "slow": "SELECT k, window_end, count(*) AS n, max(v) AS m FROM a [RANGE 3 SECONDS SLIDE 1 SECOND] GROUP BY k",
    "early": "SELECT k, window_end, count(*) AS n FROM b [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "ever": "SELECT window_end, count(*) AS n, max(v) AS m FROM a [RANGE ALL SLIDE 3 SECONDS]",
    "sessions": "SELECT k, window_start, window_end, count(*) AS n FROM b [SESSION 2 SECONDS] "
    "WHERE k <> 1 OR v < 10 OR "
    "v > 19 GROUP BY k",
    "ranked": "SELECT window_end, sum(v) AS s, first(k) AS k FROM a [RANGE 5 ROWS SLIDE 3 ROWS]",
    "each": "SELECT k, window_end, sum(v) AS s FROM b [RANGE 3 SECONDS SLIDE 2 ROWS PARTITION BY k] GROUP BY k",
    "united": "SELECT k, window_end, sum(v) AS s FROM (a UNION ALL b) [RANGE 3 SECONDS SLIDE 3 SECONDS] GROUP BY k",
    "moments": "SELECT ts, k, count(*) AS n FROM b GROUP BY ts, k",
}
WINDOWED = {name: sql for name, sql in _KINDS.items() if ALL or name in ("slow", "ever", "sessions")}
FOLDERS = ("to_folder", "mapped", "closed")
OPTIONS = {"slow": {"flush": 2, "behind": 3}, "early": {"emit": "1 millisecond"}}


def rows_of_step(step: int) -> dict[str, list[Row]]:
    """Two seconds of each stream; every row is unlike all others."""
    return {
        name: [{"ts": (2 * step + i % 2) * SECOND, "k": i % 3, "v": 10 * step + i} for i in range(size)]
        for name, size in (("a", 6), ("b", 5))
    }


def source(root: Path, steps: int) -> Replay:
    replay = Replay(root / "source", *STREAMS)
    for step in range(replay.steps, steps):
        replay.add(**rows_of_step(step))
    return replay


def engine_of(spark, root: Path, queries: Mapping[str, str] = QUERIES | WINDOWED) -> Engine:
    """The engine over `root`, with these queries declared; its state may be elsewhere."""
    engine = Engine(spark, os.environ.get(STATE) or root / "state", tasks=2)
    Replay(root / "source", *STREAMS).declare(engine)

    def append(table, step: int) -> None:
        with (root / "delivered.jsonl").open("a") as file:
            file.write(json.dumps([step, table.num_rows, table.column("v").to_pylist()]) + "\n")

    into = {**{name: root / name for name in FOLDERS}, "to_function": append}
    for name, sql in queries.items():
        engine.query(sql, name=name, into=into.get(name), **OPTIONS.get(name, {}))
    return engine


def expected(steps: int, queries: Mapping[str, str] = QUERIES | WINDOWED) -> dict[str, Counter]:
    """The answers of these queries by the reference; no row of these streams is late."""
    streams = {s.name: s for s in STREAMS}
    rows = {n: [row for step in range(steps) for row in rows_of_step(step)[n]] for n in streams}
    known = {name: sql for name, sql in queries.items() if name != "by_spark"}
    found = evaluate(known | {"pairs": f"SELECT a.v, b.v AS w {JOIN}"}, streams, rows)
    pairs = found.pop("pairs")
    answers = {name: bag(answer) for name, answer in found.items()}
    return answers | {"by_spark": bag((v, f"b{w}") for v, w in pairs if one_edit_apart(str(v), str(w)))}


def answers_of(engine: Engine, queries: Mapping[str, str] = QUERIES | WINDOWED) -> dict[str, Counter]:
    """What the engine answers; of windows that are shown while they are open, what was final."""
    found = {name: rows_of(engine.results(name)) for name in queries}
    return {n: bag(r[:-2] for r in rows if r[-1]) if n == "early" else bag(rows) for n, rows in found.items()}


def one_edit_apart(one: str, other: str) -> bool:
    """Whether a character put in, left out or changed makes them equal, or they are."""
    same = next((n for n, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
    one, other = one[same:], other[same:]
    return one[1:] == other[1:] or one[1:] == other or one == other[1:]


def in_folders(root: Path) -> dict[str, Counter]:
    """What somebody who lists the sinks' folders finds."""
    files = {name: sorted((root / name).glob("*.parquet")) for name in FOLDERS}
    return {name: bag(row for file in own for row in values_of(pq.read_table(file))) for name, own in files.items()}


def deliveries(root: Path) -> dict[int, list[list[int]]]:
    """Step -> what the function got for it, once for each delivery."""
    found: dict[int, list[list[int]]] = {}
    for line in (root / "delivered.jsonl").read_text().splitlines():
        step, _, values = json.loads(line)
        found.setdefault(step, []).append(sorted(values))
    return found
