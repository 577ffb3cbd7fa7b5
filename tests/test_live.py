"""What is shown of a run: rates, tables cut to the screen, one line for logs."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.cli.monitor import Rates, age, moment, plain_line, queries_table, screen_of, size, state_line, summary_of
from penstock.model.time import FOREVER


def status(rows=1000, results=50, queries=3, step=12):
    stream = {
        "rows": rows, "late": 2, "bad": 1, "lag_seconds": 1.234, "progress": 1_700_000_000_000_000, "integer": False,
    }  # fmt: skip
    return {
        "step": step,
        "streams": {"temperature": stream},
        "queries": {
            f"q{n}": {"results": results + n, "errors": 0, "suspended": None, "sink": "-"} for n in range(queries)
        },
        "owed": {"rows": 0, "seconds": None},
        "state": {"rows": 4321, "bytes": 123_456, "runs": 7},
        "timings": {"plan": 0.01, "job": 0.2, "commit": 0.003},
        "warnings": [],
    }


def shown(renderable, width=80, height=25):
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(renderable)
    return console.file.getvalue()


def test_owed_probes_are_shown_with_their_age():
    owing = {**status(), "owed": {"rows": 1200, "seconds": 3.5}}
    assert state_line(owing).endswith("213 ms per step   1,200 rows owe probes, for 3.5 s")


def test_rates_are_of_the_last_seconds_and_on_average():
    rates = Rates()
    for second, rows in ((0, 0), (10, 100), (12, 100), (15, 600)):
        rates.add(status(rows=rows), second)
    assert rates.recent("stream:temperature") == 100
    assert rates.average("stream:temperature") == 40
    assert rates.recent("stream:unknown") == 0


def test_a_first_picture_has_no_rates():
    rates = Rates()
    assert rates.recent("query:q0") == 0
    rates.add(status(), 1.0)
    assert rates.recent("query:q0") == rates.average("query:q0") == 0


def test_the_screen_fits_into_the_terminal_with_a_thousand_queries():
    for width, height in ((80, 24), (120, 40)):
        lines = shown(screen_of(status(queries=1000), lambda _: 1.5, height), width, height).splitlines()
        assert len(lines) < height
        assert max(map(len, lines)) <= width
        assert any(".." in line and "more" in line for line in lines)
        assert lines[-1].startswith("state 4,321 rows, 121 KiB, 7 runs   step 12   213 ms per step")


def test_queries_in_trouble_come_first_when_not_all_fit():
    found = status(queries=100)
    found["queries"]["q7"]["sink"] = "failing: OSError: no space (3 steps owed)"
    found["queries"]["q8"]["suspended"] = "division by zero"
    text = shown(queries_table(found, lambda _: 0.0, 3))
    rows = [line.split()[0] for line in text.splitlines() if line.startswith(" q") and line[2].isdigit()]
    assert sorted(rows[:2]) == ["q7", "q8"]
    assert rows[2] == "q99"
    assert "no space" in text
    assert "stopped: division by zero" in text


def test_the_summary_has_the_whole_text_of_a_failing_sink_and_all_columns():
    found = status()
    cause = f"failing: [DATA_SOURCE_NOT_FOUND] {'far ' * 40}away (3 steps owed)"
    found["queries"]["q1"]["sink"] = cause
    text = shown(summary_of(found, lambda _: 0.0))
    assert f"q1: {cause}" in " ".join(text.split())
    assert all(word in text for word in ("results/s", "errors", "sink", "51"))
    assert max(map(len, text.splitlines())) <= 80


def test_one_line_says_it_all_in_a_log():
    line = plain_line(status(), lambda key: 10.0 if key.startswith("stream") else 2.0)
    assert "\n" not in line
    for part in ("1,000 rows in (10/s)", "153 results (6/s)", "lag 1.2 s", "4,321 rows, 121 KiB", "2 late", "1 bad"):
        assert part in line
    assert "errors" not in line
    assert "waiting for the first step" in plain_line(status(step=-1), lambda _: 0.0)


def test_quantities_are_written_for_people():
    assert [age(s) for s in (None, 0.05, 119, 120, 10_000, 10**7)] == ["-", "0.1 s", "119.0 s", "2 min", "3 h", "116 d"]
    assert [size(n) for n in (0, 1023, 1024, 200_000, 5 * 2**30)] == [
        "0 bytes",
        "1,023 bytes",
        "1.0 KiB",
        "195 KiB",
        "5.0 GiB",
    ]
    assert moment(None, integer=False) == "-"
    assert moment(FOREVER, integer=False) == "ended"
    assert moment(1_700_000_000_000_000, integer=False) == "2023-11-14 22:13:20"
    assert moment(12_345, integer=True) == "12,345"
    assert moment(2**61, integer=False) == str(2**61)
