"""A local Spark session configured for Penstock; any other classic session works too."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from py4j.protocol import Py4JError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.errors import SessionError
from penstock.spark.java import ensure_java

ATTEMPTS = 4
DYING_SECONDS = 2.0  # for the end of a Java process that no longer answers
SETTINGS = {
    # The default manager is several times slower on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",  # the manifest has its own checksums
    # The default local file system starts a `chmod` process for every file it creates; this one does not.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's history of jobs for its web pages; the defaults are a thousand jobs and a hundred thousand tasks.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",  # steps want throughput; measured 5 to 10 % faster than G1
    "spark.python.worker.reuse": "true",
    # Arrow batches are large: fewer, longer writes. All sessions have it, since Spark separates workers by it.
    "spark.sql.execution.pandas.udf.buffer.size": str(4 << 20),
    "spark.python.unix.domain.socket.enabled": "true",  # TCP on loopback delays small messages by 40 ms
    "spark.log.level": "ERROR",
}


def local_session(cores: int | None = None, **settings: str) -> SparkSession:
    """A local session that also repeats failed tasks, which plain `local[n]` does not.

    `settings` are Spark settings with `__` for each dot.
    """
    stray = next((key for key in settings if not key.startswith(("spark__", "spark."))), None)
    if stray is not None:
        raise TypeError(
            f"{stray!r} is neither an argument nor a Spark setting; one is written as spark__sql__ansi__enabled"
        )
    ensure_java(install=False)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    for threads in ("OMP_NUM_THREADS", "ARROW_NUM_THREADS"):
        os.environ.setdefault(threads, "1")  # the workers are the parallelism
    count = cores or os.cpu_count() or 1
    builder = SparkSession.builder.master(f"local[{count},{ATTEMPTS}]").appName("penstock")
    given = {key.replace("__", "."): value for key, value in settings.items()}
    own = {**SETTINGS, "spark.sql.shuffle.partitions": str(count)}
    if given.get("spark.pyspark.python", os.environ["PYSPARK_PYTHON"]) == sys.executable:
        own["spark.python.daemon.module"] = "penstock.spark.daemon"
    for key, value in {**own, **given}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def gone(spark: SparkSession) -> str | None:
    """Why a session is unusable; None if it is alive."""
    context, code = spark.sparkContext, _exit_code(spark)
    if code is not None:
        return f"its Java process has ended (exit code {code})"
    try:
        stopped = context._jsc is None or context._jsc.sc().isStopped()  # noqa: SLF001
    except (Py4JError, OSError):
        code = _exit_code(spark, DYING_SECONDS)
        return "its Java process does not answer" if code is None else f"its Java process has ended (exit code {code})"
    return "it was stopped" if stopped else None


def _exit_code(spark: SparkSession, patience: float = 0) -> int | None:
    """The exit code of a session's Java process, if started here and ended, or ending within `patience` seconds."""
    process: subprocess.Popen[bytes] | None = getattr(spark.sparkContext._gateway, "proc", None)  # noqa: SLF001
    if process is None:
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    return process.poll()


def refuse_gone(spark: SparkSession, state: str) -> None:
    """Report that an engine's session is gone, instead of whatever the next call to Spark would raise."""
    if why := gone(spark):
        raise SessionError(f"the Spark session of the engine on {state} is gone: {why}; {anew(spark)}")


def anew(spark: SparkSession) -> str:
    """How to continue after a session is gone."""
    again = "make a new session, and with it a new Engine on the directory"
    # PySpark starts one Java process in the life of a program.
    return again if _exit_code(spark) is None else f"start the program again: {again}"


def end(spark: SparkSession) -> None:
    """Stop a session that may be gone already."""
    try:
        spark.stop()
    except Exception:
        if gone(spark) is None:
            raise


def raise_only() -> None:
    """Keep Spark's Python side from printing the errors that it raises; for programs that show errors themselves."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
