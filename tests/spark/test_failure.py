import errno
import os
import re
import signal

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException

from penstock.errors import PenstockError, StateError, StepError
from penstock.spark.failure import failing_as_step
from penstock.spark.query import query_failure
from tests.spark.replay import Replay, drain, stream

LOST = (
    "Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 times, most recent failure: Lost task 1.3 in "
    "stage 3.0 (TID 9) (x executor driver): "
)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("Job aborted\n  at x.y(Z.java:1)\njava.io.IOException: No such thing: x\n",
         "java.io.IOException: No such thing: x"),
        ("Something else\nand its stack", "Something else"),
        (
            ('[PYTHON_EXCEPTION] x: Traceback (most recent call last):\n  File "x.py", line 1, in work\n    a.b()\n'
            "pyarrow.lib.ArrowInvalid: Column 5: not valid\n SQLSTATE: 38000\n\tat a.b(C.java:1)\n"),
            "pyarrow.lib.ArrowInvalid: Column 5: not valid",
        ),
        ("", "PySparkException"),
    ],
)  # fmt: skip
def test_a_job_that_fails_in_spark_fails_its_step_with_the_last_cause(said, cause):
    with (
        pytest.raises(StepError, match=r"^step 7 failed and nothing of it was committed: ") as caught,
        failing_as_step(7),
    ):
        raise PySparkException(said)
    assert str(caught.value).endswith(f": {cause}")


@pytest.mark.parametrize(
    ("said", "meaning", "remedy"),
    [
        (("org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's "
         "stdout and terminated with code: 3."),
         "Spark cannot start its Python workers, 4 times (", "PYSPARK_PYTHON"),
        ('java.io.IOException: Cannot run program "python9": error=2, No such file or directory',
         "Spark cannot start its Python workers, 4 times", "PYSPARK_PYTHON"),
        ("org.apache.spark.SparkException: Python worker failed to connect back.", "cannot start its Python workers",
         "ulimit -u"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting ..",
         "ended in the middle of its task: it was killed, mostly for want of memory, or it crashed, 4 times (",
        "fewer cores at once, smaller batches"),
        (("org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File x\n"
         "MemoryError: 5 GiB"), "has no memory left", "smaller batches"),
        ("pyarrow.lib.ArrowMemoryError: malloc of size 8 failed", "has no memory left", "smaller batches"),
        ("java.lang.OutOfMemoryError: Java heap space", "Java process has no memory left", "spark.driver.memory"),
        ("pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker: 3.9",
         "another Python than this program", "PYSPARK_PYTHON"),
        ("ModuleNotFoundError: No module named 'penstock'", "without penstock", "install"),
        (("org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
         "OSError: [Errno 28] No space left on device: '/x/runs/1'"),
         "a disk is full, 4 times (OSError: [Errno 28] No space left on device: '/x/runs/1')", "make room"),
        (("org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
         "OSError: [Errno 30] Read-only file system: '/x/runs/1'"), "cannot be written", "writable"),
    ],
)  # fmt: skip
def test_what_spark_says_of_its_workers_is_told_as_what_it_is_with_the_remedy(said, meaning, remedy):
    with pytest.raises(StepError) as caught, failing_as_step(7):
        raise PySparkException(f"{LOST}{said}\n\tat org.apache.spark.X.y(X.scala:1)\n" + "\tat a.b(C.java:1)\n" * 40)
    text = str(caught.value)
    assert text.startswith("step 7 failed and nothing of it was committed: ")
    assert meaning in text
    assert remedy in text.rpartition("; ")[2] or remedy in text
    assert "\n" not in text
    assert "\tat" not in text
    assert caught.value.__suppress_context__


def test_what_a_worker_says_of_a_damaged_file_is_the_message():
    said = (
        f"{LOST}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "
        "x\npenstock.errors.StateError: state file x is damaged; restore it\n\n\tat y"
    )
    with (
        pytest.raises(
            StateError, match=r"^step 7 failed and nothing of it was committed: state file x is damaged; restore it$"
        ),
        failing_as_step(7),
    ):
        raise PySparkException(said)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "cannot be used: no space left on device; make room"),
        (errno.EROFS, "cannot be used: read-only file system; let the state directory be writable"),
        (errno.EIO, "restore"),
    ],
)
def test_a_file_that_the_step_itself_cannot_write_is_named_with_the_remedy(number, remedy):
    with (
        pytest.raises(
            StateError, match=rf"step 7 failed and nothing of it was committed: /s/manifest/7\.json .*{remedy}"
        ),
        failing_as_step(7),
    ):
        raise OSError(number, os.strerror(number), "/s/manifest/7.json")


def test_other_errors_pass():
    for other in (KeyError("x"), ConnectionRefusedError("x")):
        with pytest.raises(type(other)), failing_as_step(7):
            raise other
    with pytest.raises(StepError, match="Spark does not answer"), failing_as_step(7):
        raise Py4JNetworkError("x")


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("batch 12 doesn't exist", StateError,
         r"^Spark's own log in /s/checkpoint is damaged: .*batch 12 doesn't exist.*Restore manifest/ and checkpoint/"),
        ("Incomplete log file /s/x", StateError, "Spark's own log in /s/checkpoint is damaged"),
        ("No space left on device", PenstockError,
         r"^the Spark query of the engine on /s ended with an error: a disk is full \(.*make room"),
        ("Cannot fetch offset 7", PenstockError,
         r"^the Spark query of the engine on /s ended with an error: .*Cannot fetch offset 7$"),
    ],
)  # fmt: skip
def test_what_ends_sparks_query_is_told_in_a_line(said, kind, told):
    text = (
        f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {said}\n=== Streaming Query "
        "===\nIdentifier: x"
    )
    error = query_failure(StreamingQueryException(text), "/s")
    assert type(error) is kind
    assert re.search(told, str(error))
    assert "\n" not in str(error)


class Deadly:
    """An aggregate whose worker is killed, as the system does when memory runs out."""

    type = "bigint"

    def zero(self):
        return 0

    def add(self, state, value):
        os.kill(os.getpid(), signal.SIGKILL)

    def merge(self, left, right):
        return left

    def finish(self, state):
        return state


@pytest.mark.spark
def test_a_worker_that_is_killed_ends_the_run_with_the_remedy(spark, tmp_path):
    replay = Replay(tmp_path / "source", stream("a", "ts bigint, k bigint, v bigint"))
    replay.add(a=[{"ts": 1, "k": 1, "v": 1}])
    engine = replay.engine(spark, tmp_path / "state")
    engine.aggregate("deadly", Deadly())
    engine.query("SELECT k, deadly(v) AS d FROM a [RANGE 2 SLIDE 2] GROUP BY k", name="q")
    with pytest.raises(StepError, match=r"ended in the middle of its task: .* 4 times .*smaller batches") as caught:
        drain(engine)
    assert "\n" not in str(caught.value)
