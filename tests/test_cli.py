"""The command line: messages, exit codes, signals; with Spark one run that is interrupted and goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli import main as cli
from penstock.cli import options
from penstock.errors import StepError
from penstock.sql import CreateQuery
from penstock.state.registry import Registry

ROOT = Path(__file__).parents[1]
PENSTOCK = [sys.executable, "-m", "penstock"]
STREAM = (
    "CREATE STREAM {0} (k INT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 1 MINUTE)"
    " USING parquet OPTIONS (path 'in/{0}');\n"
)
STREAMS = STREAM.format("a") + STREAM.format("b")
SOURCES = (
    "CREATE SOURCE x (k INT) USING parquet OPTIONS (path 'x');\nCREATE SOURCE y USING parquet OPTIONS (path 'y');\n"
)
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT x.k FROM x, y WHERE x.k = y.k;\n"
QUERY = "CREATE QUERY q AS SELECT a.k FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k;\n"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes app.sql in an empty current folder."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        Path("app.sql").write_text(text, encoding="utf-8")
        return "app.sql"

    return write


# -- mistakes, without Spark ------------------------------------------------------------------------------------


def test_check_prints_one_line_per_statement(script, capsys):
    assert cli.main(["check", script(STREAMS + QUERY + "SHOW QUERIES; EXPLAIN q"), "--no-spark"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "app.sql:1: ok: stream a",
        "app.sql:2: ok: stream b",
        "app.sql:3: ok: query q",
        "app.sql:4: ok: show queries",
        "app.sql:4: ok: explain q",
    ]


def test_views_of_files_are_explained_without_spark(script, capsys, monkeypatch):
    monkeypatch.setattr(cli, "start_spark", None)
    for name, rows in (("x", 300), ("y", 20)):
        Path(name).mkdir()
        pq.write_table(pa.table({"k": list(range(rows))}), Path(name, "0.parquet"))
    sources = "".join(f"CREATE SOURCE {n} USING parquet OPTIONS (path '{n}');\n" for n in ("x", "y"))
    view = "CREATE MATERIALIZED VIEW v AS SELECT x.k FROM x, y WHERE x.k = y.k;\n"
    assert cli.main(["explain", script(sources + view)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("view v over x (x), y (y)\n  x - y: x.k = y.k\ncomputed whole:\n  here: here ")
    assert "x (300 rows)" in shown
    assert "y (20 rows)" in shown
    assert cli.main(["explain", script(sources + view.replace("y.k", "y.z"))]) == 1
    assert "app.sql:3:" in capsys.readouterr().err
    assert cli.main(["explain", "app.sql", "--state", "nowhere"]) == 1


def test_queries_over_queries_are_checked_without_spark(script, capsys):
    above = "CREATE QUERY p AS SELECT a.k, b.k + 1 AS n, result_time FROM a, b WHERE a.k = b.k WINDOW 1 HOUR;\n"
    above += "CREATE QUERY c AS SELECT k, last(n) AS n, window_end FROM p [TUMBLING 1 HOUR] GROUP BY k;\n"
    assert cli.main(["check", script(STREAMS + above + "EXPLAIN SELECT n FROM c WHERE n > 1"), "--no-spark"]) == 0
    capsys.readouterr()
    assert cli.main(["check", script(STREAMS + above + "CREATE QUERY d AS SELECT m FROM c"), "--no-spark"]) == 1
    assert "app.sql:5:26: error: Unknown column m" in capsys.readouterr().err
    assert cli.main(["check", script(STREAMS + above + "DROP QUERY c; EXPLAIN SELECT n FROM c"), "--no-spark"]) == 1
    assert "Unknown stream c" in capsys.readouterr().err


def test_an_error_shows_its_place_the_line_a_caret_and_a_hint(script, capsys):
    text = STREAMS + "CREATE QUERY q AS\n\tSELECT a.kk FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
    assert cli.main(["check", script(text), "--no-spark"]) == 1
    out, err = capsys.readouterr()
    place, line, caret, hint = err.splitlines()
    assert re.fullmatch(r"app\.sql:4:9: error: .*kk", place)
    assert (out, line.strip(), hint) == ("", text.splitlines()[3].strip(), "hint: did you mean k?")
    assert caret.strip() == "^"
    assert line[len(caret) - 1 :].startswith("a.kk")  # under its place, tabs or not


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "app.sql: error: the script is empty"),
        ("-- only a comment\n;", "app.sql: error: the script is empty"),
        (STREAMS, "app.sql: error: the script has no query"),
        (STREAM.format("a") * 2 + QUERY, "app.sql:2:1: error: stream 'a' is declared twice"),
        (STREAMS + QUERY + QUERY.replace("a.k F", "b.k F"), "app.sql:4:1: error: query 'q' is defined twice"),
        (
            STREAMS + "  CREATE QUERY q AS SELECT a.k FROM a, b WHERE a.k = b.k",
            "app.sql:3:37: error: rows of 'a' could",
        ),
        (STREAMS + QUERY + "EXPLAIN SELECT x FROM a", "app.sql:4:16: error:"),
        (SOURCES + "DROP SOURCE x;\n" + VIEW, "app.sql:4:47: error: Unknown source x"),
    ],
)
def test_what_is_wrong_with_a_script(script, capsys, text, message):
    for command in ("check", "run", "explain"):
        assert cli.main([command, script(text)]) == 1  # found before Spark is started
        assert message in capsys.readouterr().err
    assert not Path("penstock-state").exists()


BROKEN = STREAM.format("c").replace("FOR at AS at", "FOR now AS now") + "CREATE QUERY bad AS SELECT a.kk FROM a;\n"


def test_check_reports_every_statement_that_is_wrong(script, capsys):
    text = STREAMS + BROKEN + "CREATE STREM d;\nCREATE QUERY worse AS SELECT k FROM b GROUP BY k;\n" + QUERY
    assert cli.main(["check", script(text), "--no-spark"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.findall(r"^app\.sql:(\d+):\d+: error: (.*)$", err, re.MULTILINE) == [
        ("3", "Unknown column now"),
        ("4", "Stream a has no column kk"),
        ("5", "CREATE STREM is not supported"),
        ("6", "An aggregate needs a window on b"),
    ]
    assert cli.main(["run", "app.sql"]) == 1  # which stops at the first
    assert "app.sql:3:53: error: Unknown column now" in capsys.readouterr().err


def test_what_reads_a_refused_statement_is_not_called_wrong(script, capsys):
    above = [
        "CREATE QUERY e AS SELECT c.k, a.k AS l, result_time FROM a [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE a.k = c.k",
        "CREATE QUERY f AS SELECT count(*) AS n, window_end FROM bad [TUMBLING 1 HOUR]",
        "EXPLAIN f",
        "DROP QUERY f",
        "CREATE QUERY bad AS SELECT k, at AS result_time FROM a",
        "EXPLAIN SELECT zz FROM bad",
    ]
    assert cli.main(["check", script(STREAMS + BROKEN + ";\n".join(above)), "--no-spark"]) == 1
    err = capsys.readouterr().err
    assert re.findall(r"^app\.sql:(\d+):1: not checked: (.*)$", err, re.MULTILINE) == [
        ("5", "it reads c, which was refused"),
        ("6", "it reads bad, which was refused"),
        ("7", "it reads f, which was refused"),
        ("8", "it reads f, which was refused"),
    ]
    assert re.findall(r"^app\.sql:(\d+):\d+: error: (.*)$", err, re.MULTILINE)[2:] == [("10", "Unknown column zz")]


def test_a_name_that_was_dropped_is_free(script):
    queries = QUERY + "DROP QUERY q;\n" + QUERY.replace("a.k F", "b.k F")
    sources = SOURCES + "DROP SOURCE x;\n" + SOURCES.splitlines()[0].replace("INT", "BIGINT") + VIEW
    assert cli.main(["check", script(STREAMS + queries + sources), "--no-spark"]) == 0
    altered = QUERY + "ALTER QUERY q AS SELECT k FROM a;\n" + QUERY
    assert cli.main(["check", script(STREAMS + altered), "--no-spark"]) == 1


@pytest.mark.parametrize("state", ["file", "file/x", "/proc/x"])
def test_a_state_directory_that_cannot_be_used(script, capsys, state):
    Path("file").touch()
    assert cli.main(["run", script(STREAMS + QUERY), "--state", state]) == 1  # before Spark is started
    err = capsys.readouterr().err
    assert err.startswith(f"app.sql: error: {state} cannot be used: ")
    assert err.endswith("give with --state a folder that is new, or that 'penstock run' has made\n")


def test_a_file_that_cannot_be_read(script, capsys, tmp_path):
    assert cli.main(["run", "nope.sql"]) == 1
    assert capsys.readouterr().err == "nope.sql: error: cannot be read: no such file or directory\n"
    assert cli.main(["run", "."]) == 1
    (tmp_path / "app.sql").write_bytes(b"\xff\xfe")
    assert cli.main(["run", "app.sql"]) == 1
    assert "is not text in UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "app.sql", "--final"], "--final needs --available-now"),
        (["run", "app.sql", "--for", "soon"], "cannot read 'soon' as a time"),
        (["run", "app.sql", "--trigger", "0 seconds"], "cannot read '0 seconds' as a time"),
        (["run", "app.sql", "--trigger", "often"], "cannot read 'often' as a time"),
        (["run", "app.sql", "--cores", "0"], "must be a whole number above 0"),
        (["run"], "required: script"),
        ([], "required: COMMAND"),
        (["start", "app.sql"], "invalid choice: 'start'"),
    ],
)
def test_wrong_usage_is_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_help_and_version(capsys):
    for arguments, text in ((["--help"], "penstock run app.sql --for 60s"), (["--version"], "penstock 0.")):
        with pytest.raises(SystemExit) as left:
            cli.main(arguments)
        assert left.value.code == 0
        assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("90", 90), ("1.5 m", 90), ("2h", 7200), ("500ms", 0.5), ("1 minute 30 seconds", 90), ("1m 30s", 90)],
)
def test_times_are_written_in_many_ways(text, seconds):
    assert options._seconds(text) == seconds


@pytest.mark.parametrize("path", sorted([*(ROOT / "examples").glob("*.sql"), *(ROOT / "src").rglob("demo/*.sql")]))
def test_the_scripts_that_come_with_the_project_are_right(path):
    assert cli.main(["check", str(path), "--no-spark"]) == 0


# -- how a run ends, with an engine of straw --------------------------------------------------------------------


class StrawRun:
    """As much of a run as the command line sees; `waits` says what happens while it is waited for."""

    def __init__(self, waits):
        self.seen = SimpleNamespace(streams={"a": SimpleNamespace(integer_time=False)}, sinks=[])
        self.active, self.final, self.stopped = True, False, 0
        self.waits = iter(waits)

    def status(self):
        stream = {"rows": 7, "late": 0, "bad": 0, "lag_seconds": 1.5, "progress": None}
        query = {"results": 3, "errors": 0, "suspended": None}
        state = {"rows": 5, "bytes": 2048, "runs": 1}
        return {
            "step": 4, "streams": {"a": stream}, "queries": {"q": query}, "state": state, "owed": {"rows": 0},
            "timings": {}, "warnings": [],
        }  # fmt: skip

    def await_termination(self, timeout=None):
        return next(self.waits)()

    def stop(self):
        self.stopped += 1
        if self.waits and (last := next(self.waits, None)):
            last()
        self.active = False


@pytest.fixture
def straw(script, monkeypatch):
    """Runs `penstock run` on a straw engine; the exit code and the run."""

    def run(*waits, arguments=(), execute=lambda *_: [], starting=lambda: None):
        found = StrawRun(waits)
        engine = SimpleNamespace(
            execute_statement=execute,
            catalog=SimpleNamespace(registry=Registry()),
            manifest=lambda: SimpleNamespace(step=3),
            queries=lambda: [{"name": "q"}, {"name": "older"}],
            start=lambda *_, **__: found,
            spark=SimpleNamespace(stop=lambda: None),
        )

        def start(state, *_):
            starting()
            state.mkdir(parents=True, exist_ok=True)  # as a real start does: Spark's log is there
            return engine

        monkeypatch.setattr(cli, "start_spark", start)
        return cli.main(["run", script(STREAMS + QUERY), *arguments]), found

    return run


def send(number):
    def send_now():
        os.kill(os.getpid(), number)
        time.sleep(0.01)
        return False

    return send_now


def test_a_run_that_ends_by_itself_is_0(straw, capsys):
    code, _ = straw(lambda: False, lambda: True)
    out = capsys.readouterr().out
    assert code == 0
    assert "state in penstock-state/app" in out
    assert "Going on after step 3." in out
    assert "older is in the state but not in the script" in out
    assert "Stopped after step 4." in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_interrupt_stops_cleanly(straw, number):
    code, run = straw(send(number))
    assert (code, run.stopped, run.active) == (0, 1, False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_before_the_first_step_is_130(straw, capsys, number):
    before = signal.getsignal(number)

    def execute(*_):
        send(number)()

    def spark_handler(*_):
        raise AssertionError("Spark has put in a handler of its own")

    code, run = straw(execute=execute, starting=lambda: signal.signal(number, spark_handler))
    assert (code, run.stopped) == (130, 0)
    code, run = straw(execute=None, starting=send(number))  # while Spark starts: it waits for that, and nothing follows
    assert (code, run.stopped) == (130, 0)
    assert "nothing was changed" not in capsys.readouterr().out
    assert signal.getsignal(number) is before


def test_what_the_state_refuses_while_the_script_is_registered(straw, capsys):
    def execute(*_):
        raise NotADirectoryError(20, "Not a directory", str(Path("penstock-state/app/registry").absolute()))

    code, _ = straw(execute=execute)
    assert code == 1
    assert "registry cannot be used: not a directory; penstock-state/app is to hold" in capsys.readouterr().err


def test_a_warning_is_told_with_its_place_in_the_script(straw, capsys):
    def execute(statement, *_):
        if isinstance(statement, CreateQuery):
            warnings.warn("[x] grows", stacklevel=1)
        return []

    code, _ = straw(lambda: True, execute=execute)
    assert code == 0
    assert capsys.readouterr().err == "app.sql:3: warning: [x] grows\n"


def test_a_run_that_ends_with_a_suspended_query_is_5(straw, monkeypatch, capsys):
    status = StrawRun.status

    def suspended(self):
        found = status(self)
        found["queries"]["q"]["suspended"] = "too many rows"
        return found

    monkeypatch.setattr(StrawRun, "status", suspended)
    code, _ = straw(lambda: True)
    assert code == 5
    assert "too many rows" in capsys.readouterr().out


def test_a_second_interrupt_leaves_at_once(straw, monkeypatch):
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as left:
        straw(send(signal.SIGINT), send(signal.SIGTERM))
    assert left.value.code == 130


def test_a_time_limit_stops_cleanly(straw):
    code, run = straw(lambda: time.sleep(0.01), arguments=["--for", "5ms"])
    assert (code, run.stopped) == (0, 1)


def test_a_failed_step_is_3(straw, capsys, tmp_path):
    def fail():
        raise StepError("step 5 failed: the disk is full")

    code, _ = straw(lambda: False, fail)
    err = capsys.readouterr().err
    assert code == 3
    assert "app.sql: error: the run failed: step 5 failed: the disk is full\ndetails: " in err
    assert "Traceback" not in err
    assert "Traceback" in (tmp_path / "penstock-state" / "app" / "spark.log").read_text()


# -- with Spark -------------------------------------------------------------------------------------------------


def put(folder, name, keys):
    at = pa.array([1_700_000_000_000_000 + k for k in keys], pa.timestamp("us", "UTC"))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"k": pa.array(keys, pa.int32()), "at": at}), folder / name)


@pytest.mark.long
@pytest.mark.spark
def test_an_interrupted_run_goes_on_where_it_stopped(script, tmp_path):
    script(STREAMS + QUERY.replace(";", "\nINTO 'out';"))
    put(tmp_path / "in/a", "1.parquet", [1, 2, 3])
    put(tmp_path / "in/b", "1.parquet", [2, 3, 3])
    first = subprocess.Popen(
        [*PENSTOCK, "run", "app.sql", "--for", "300s", "--cores", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while not (tmp_path / "penstock-state/app/manifest/000000000000.json").exists():
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=120)
    assert (first.returncode, err) == (0, "")
    assert "Run the same command again" in out
    assert total(out, "q") == 3

    put(tmp_path / "in/a", "2.parquet", [3, 9])
    put(tmp_path / "in/b", "2.parquet", [1, 9])
    again = subprocess.run(
        [*PENSTOCK, "run", "app.sql", "--available-now", "--final", "--cores", "1"],
        capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False,
    )  # fmt: skip
    assert (again.returncode, again.stderr) == (0, "")
    assert "Going on after step" in again.stdout
    assert "The streams have ended." in again.stdout
    assert [total(again.stdout, name) for name in ("a", "b", "q")] == [5, 5, 7]
    assert sorted(pq.read_table(tmp_path / "out")["k"].to_pylist()) == [1, 2, 3, 3, 3, 3, 9]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["app.sql", "in", "out", "penstock-state"]


@pytest.mark.spark
def test_check_with_spark_knows_sources_functions_and_types(script, tmp_path):
    example = (ROOT / "examples/sensors.sql").read_text(encoding="utf-8")
    script(example + "\nCREATE QUERY broken AS\n  SELECT timestamp + value AS x FROM smoke;\n")
    done = subprocess.run(
        [*PENSTOCK, "check", "app.sql"], capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False
    )
    line = example.count("\n") + 2
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"app.sql:{line}:1: error: query 'broken': [DATATYPE_MISMATCH")
    assert done.stderr.splitlines()[1:] == ["  CREATE QUERY broken AS", "  ^"]
    assert [p.name for p in tmp_path.iterdir()] == ["app.sql"]


def total(text, name):
    """The first number in the last table row of that name."""
    found = re.findall(rf"^ *{name} +([\d,]+) ", text, re.MULTILINE)
    return int(found[-1].replace(",", ""))
