"""The demo tells the truth: its counts are those of a count by hand over the files it wrote."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.demo.sensors import Reading
from penstock.demo.summary import kept_until, most_kept
from penstock.model.time import SECOND
from penstock.sql import parse_query, parse_script

START = datetime(2026, 1, 1, tzinfo=UTC)
STREAMS = {
    s.stream.name: s.stream
    for s in parse_script(
        "".join(
            f"CREATE STREAM {n} (k INT, at TIMESTAMP, v INT, WATERMARK FOR at AS at - INTERVAL 1 SECOND) USING rate;"
            for n in ("a", "b")
        )
    )
}


def readings(seconds):
    """One row per stream and second, each written in its own second."""
    return [
        Reading(stream, tick, {"k": 1, "at": (START + timedelta(seconds=tick)).isoformat(), "v": tick})
        for tick in range(seconds)
        for stream in ("a", "b")
    ]


def kept(sql, rows):
    return kept_until(parse_query(sql, STREAMS), STREAMS, rows)


def test_a_query_alone_keeps_what_its_windows_and_filters_need():
    rows = readings(20)
    wide = kept("SELECT a.k FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k", rows)
    odd = kept("SELECT a.k FROM a [RANGE 5 SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k AND a.v > 100", rows)
    # Progress is a second behind: at time t the rows t-5 .. t can still find partners under a window of five seconds.
    assert most_kept([wide], rows) == 2 * 6
    assert most_kept([odd], rows) == 3
    assert most_kept([wide, odd], rows) == 15
    assert kept("SELECT k FROM a WHERE v > 3", rows).max() == -1
    assert STREAMS["a"].delay == SECOND


def test_rows_that_are_late_or_bad_are_kept_by_nobody():
    rows = [*readings(3), Reading("a", 2, {"k": 1, "at": "nonsense", "v": 1}, "bad")]
    sql = "SELECT a.k FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE a.k = b.k"
    assert most_kept([kept(sql, rows)], rows) == 6


@pytest.mark.spark
def test_the_demo_counts_right_and_cleans_up(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "penstock.demo", "--seconds", "6", "--keep"],
        capture_output=True, text=True, timeout=400, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout
    folder = Path(re.search(r"^Kept: (\S+)", text, re.MULTILINE)[1])
    try:
        temperature, odd = by_location(folder / "input/temperature")
        humidity, odd_too = by_location(folder / "input/humidity")
    finally:
        shutil.rmtree(folder)
    hot = {place: [r for r in rows if r[1] > 30] for place, rows in temperature.items()}
    assert results(text, "all_pairs") == pairs(temperature, humidity, timedelta(seconds=10)) > 0
    assert results(text, "hot_readings") == pairs(hot, humidity, timedelta(seconds=60)) > 0
    assert re.search(rf"engine.late\('temperature'\): {odd['late']} row", text)
    assert re.search(rf"engine.bad\('humidity'\): {odd_too['bad']} row", text)
    assert re.search(r"Penstock, all 7 queries +[\d,]+ rows", text)
    assert len(re.findall(r"^      SELECT", text, re.MULTILINE)) == 7
    assert len(re.findall(r"equal to a count by\s+hand", text)) == 4
    assert "NOT equal" not in text
    assert "refreshed by" in text
    assert list(tmp_path.iterdir()) == []


def results(text, name):
    return int(re.search(rf"^\d\. {name}: ([\d,]+) results", text, re.MULTILINE)[1].replace(",", ""))


def by_location(folder):
    """(time, value) of the rows that keep their stream's promise; how many do not."""
    found, odd, newest = {}, {"late": 0, "bad": 0}, None
    for path in sorted(folder.glob("*.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            try:
                at = datetime.fromisoformat(row["at"])
            except ValueError:
                odd["bad"] += 1
                continue
            if newest is not None and newest - at > timedelta(seconds=100):
                odd["late"] += 1
                continue
            newest = max(newest or at, at)
            found.setdefault(row["location"], []).append((at, row["value"]))
    return found, odd


def pairs(left, right, window):
    return sum(
        abs(one - other) < window
        for place, rows in left.items()
        for one, _ in rows
        for other, _ in right.get(place, ())
    )
