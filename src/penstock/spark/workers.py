"""Whether the Python workers of a session can do what a step needs: checked when an engine is made."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import penstock
from penstock.errors import SessionError
from penstock.spark.failure import explained, last_cause

ASKING_SECONDS = 60.0
_log = logging.getLogger("penstock.step")
_known: set[tuple[str, str]] = set()  # (application, Python) whose workers passed


def check_workers(spark: SparkSession) -> None:
    """Refuse a session whose workers run another Python version, or have no penstock or another one.

    Workers on this machine that run this very Python pass; any others are checked once, by a job of one task.
    """
    context = spark.sparkContext
    python = str(context.pythonExec)
    asked = (str(context.applicationId), python)
    if asked in _known or (str(context.master).startswith("local") and is_this_python(python)):
        return
    mine, remedy = f"{sys.version_info.major}.{sys.version_info.minor}", _remedy()

    def versions(_: int) -> tuple[str, str, str]:
        # Runs in the worker, which may lack penstock: so it is sent whole, and imports what it uses.
        import sys  # noqa: PLC0415

        try:
            import penstock  # noqa: PLC0415
            import penstock.step.worker  # noqa: PLC0415
        except ImportError as error:
            return sys.executable, f"{sys.version_info.major}.{sys.version_info.minor}", f"!{error}"
        return sys.executable, f"{sys.version_info.major}.{sys.version_info.minor}", penstock.__version__

    try:
        where, version, found = context.parallelize([0], 1).map(versions).collect()[0]
    except (PySparkException, Py4JJavaError) as error:
        _log.debug("asking a worker failed", exc_info=True)
        # Workers may be started by a module of penstock: nothing else reveals that it is missing.
        told = _import_error(python) if str(context.master).startswith("local") else None
        if told is None:
            said = explained(str(error), last_cause(error))
            raise SessionError(f"the Python workers of this Spark session ({python}) cannot be used: {said}") from None
        where, version, found = told
    if (version, found) != (mine, penstock.__version__):
        other = f"without a penstock that can be imported ({found[1:]})" if found[:1] == "!" else f"penstock {found}"
        msg = (
            f"the Python workers of this Spark session run {where} (Python {version}, {other}), and this "
            f"program {sys.executable} "
            f"(Python {mine}, penstock {penstock.__version__}); {remedy}"
        )
        raise SessionError(msg)
    _known.add(asked)


def _import_error(python: str) -> tuple[str, str, str] | None:
    """The error of a Python on this machine that cannot import penstock, as a worker; None if it is another one."""
    asked = "import sys; print(sys.executable); print('%d.%d' % sys.version_info[:2]); import penstock.step.worker"
    try:
        said = subprocess.run(  # noqa: S603  (what Spark runs as its workers anyway)
            [python, "-c", asked], capture_output=True, text=True, timeout=ASKING_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    known, (kind, _, why) = said.stdout.splitlines(), said.stderr.strip().rpartition("\n")[2].partition(": ")
    if said.returncode == 0 or len(known) < 2 or kind not in ("ImportError", "ModuleNotFoundError"):
        return None
    return known[0], known[1], f"!{why}"


def is_this_python(name: str) -> bool:
    """Whether a worker's Python is this program's, of the same virtual environment."""
    found = shutil.which(name)
    if found is None or not sys.executable:
        return False
    there, here = Path(found).absolute(), Path(sys.executable).absolute()
    # A virtual environment is a folder with links to one and the same Python.
    return there == here or (there.parent == here.parent and os.path.realpath(there) == os.path.realpath(here))


def _remedy() -> str:
    return (
        f"set PYSPARK_PYTHON or spark.pyspark.python to {sys.executable} before the session is made "
        "(Engine.local does), "
        f"or install Python and penstock {penstock.__version__} alike where the workers run"
    )
