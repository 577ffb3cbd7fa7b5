"""The message of a failed job: the cause in one line, and the remedy if the environment is at fault, not the data.

Spark repeats a failed task several times; failures here are final. Spark's stacks go to the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from penstock.errors import StateError, StepError
from penstock.spark.analysis import spark_message
from penstock.storage.faults import file_fault, plainly

_log = logging.getLogger("penstock.step")
_CAUSE = re.compile(r"(?:[A-Za-z_.]*\.)?[A-Z][A-Za-z]*(?:Error|Exception)\b.*: ")
_RAISED = re.compile(r"^[A-Za-z_][\w.]*: .+$", re.MULTILINE)  # a line that is not indented
_OURS = re.compile(r"penstock\.errors\.(\w+): (.+)")
_PLACE = re.compile(r"^Job aborted due to.*?\(TID \d+\)(?: \([^)]*\))?: ")
_TIMES = re.compile(r"failed (\d+) times")
_LESS = (
    "use fewer cores at once, smaller batches (maxFilesPerTrigger, maxOffsetsPerTrigger) or a machine with more memory"
)
# Spark's messages about its workers, their meaning, and the remedy.
_FAULTS = (
    (
        (
            r"reading the port number|Cannot run program|Invalid port number|failed to connect back|Failed to "
            r"launch Python"
        ),
        "Spark cannot start its Python workers",
        (
            "see that PYSPARK_PYTHON (spark.pyspark.python) names a Python that starts by itself and has "
            "penstock installed, and that memory and "
            "processes are left for it (ulimit -u, limits of the container)"
        ),
    ),
    (
        r"PYTHON_VERSION_MISMATCH|No module named '?penstock",
        "Spark's workers run another Python than this program, or one without penstock",
        (
            "set PYSPARK_PYTHON (spark.pyspark.python) to this program's Python before the session is made, or "
            "install the same penstock there"
        ),
    ),
    (
        r"worker exited unexpectedly",
        (
            "a Python worker of Spark ended in the middle of its task: it was killed, mostly for want of memory, "
            "or it crashed"
        ),
        (
            f"{_LESS}; if it is not memory (the system's log says whom it killed), set "
            "spark.python.worker.faulthandler.enabled=true to see where it crashed"
        ),
    ),
    (
        r"\b(?:Arrow)?MemoryError\b|\[Errno 12\]",
        "a Python worker of Spark has no memory left",
        _LESS,
    ),
    (
        r"OutOfMemoryError",
        "Spark's Java process has no memory left",
        (
            "give it more (spark.driver.memory, before the session is made), or use smaller batches "
            "(maxFilesPerTrigger, maxOffsetsPerTrigger)"
        ),
    ),
    (
        r"\[Errno (?:28|122)\]|[Ee]xception: (?:No space left on device|Disk quota exceeded)",
        "a disk is full",
        (
            "make room in the state directory and in Spark's scratch folder (spark.local.dir, mostly /tmp), and "
            "start again"
        ),
    ),
    (
        r"FAILED_READ_FILE|verify \w*\s?page integrity|is not a Parquet file",
        "a file cannot be read",
        "restore it from a backup if it belongs to the state directory, or mend it where it comes from",
    ),
    (
        r"\[Errno (?:13|30)\]|\((?:Permission denied|Read-only file system)\)|AccessDeniedException",
        "a file cannot be written",
        (
            "let the state directory and Spark's scratch folder (spark.local.dir, mostly /tmp) be writable for "
            "this program and Spark's workers, and start again"
        ),
    ),
)


@contextmanager
def failing_as_step(step: int) -> Iterator[None]:
    """A job that fails inside fails its step, with Spark's cause and without its stacks."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        _log.debug("step %d failed", step, exc_info=True)
        text = str(error)
        ours = _OURS.search(text)
        if ours is not None:  # our own error from a worker is complete
            kind = StateError if ours[1] == StateError.__name__ else StepError
            raise kind(f"step {step} failed and nothing of it was committed: {ours[2]}") from None
        raise StepError(
            f"step {step} failed and nothing of it was committed: {explained(text, last_cause(error))}"
        ) from None
    except OSError as error:
        if plainly(error) is error:
            raise  # the connection to Spark, not a file
        raise StateError(f"step {step} failed and nothing of it was committed: {file_fault(error)}") from None
    except Py4JError as error:
        _log.debug("step %d failed", step, exc_info=True)
        raise StepError(
            f"step {step} failed and nothing of it was committed: Spark does not answer ({error})"
        ) from None


def explained(text: str, cause: str) -> str:
    """A cause in Spark's words, after its meaning and the remedy, if known."""
    for pattern, meaning, remedy in _FAULTS:
        if re.search(pattern, text):
            times = _TIMES.search(text)
            tried = f", {times[1]} times" if times and times[1] != "1" else ""
            return f"{meaning}{tried} ({cause}); {remedy}"
    return cause


def last_cause(error: Exception) -> str:
    """The last line of a worker's traceback, or the last cause that Spark names."""
    _, raised, end = str(error).rpartition("Traceback (most recent call last)")
    if raised and (found := _RAISED.search(end)):
        return found[0]
    causes = [line.strip() for line in str(error).splitlines() if _CAUSE.match(line.strip())]
    return _PLACE.sub("", causes[-1] if causes else spark_message(error))
