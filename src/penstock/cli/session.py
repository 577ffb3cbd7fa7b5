"""Start and end of a program around an engine: a quiet start of Spark, a clean stop on Ctrl-C.

Spark is imported only when it is started.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.console import Console

from penstock.errors import PenstockError
from penstock.storage.local import LocalStore

if TYPE_CHECKING:
    from penstock.engine import Engine

SPARK_LOG = "spark.log"
WAREHOUSE = "spark-warehouse"


class Interrupts:
    """SIGINT and SIGTERM: before the run they end the program; later the first one requests a clean stop.

    After that a second one ends the program at once, as KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._gentle = False

    def __enter__(self) -> Self:
        self._before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
        self._install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        logging.disable(logging.NOTSET)

    def gentle(self) -> None:
        """From now on finish the running step first."""
        self._gentle = True
        self._install()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """For the start of Spark, which would leave a Java process behind: the first signal takes effect afterwards.

        Spark installs a handler of its own, which is replaced.
        """
        self._gentle = True
        yield
        self._gentle = False
        self._install()
        if self.asked.is_set():
            self._handle()

    def _install(self) -> None:
        for number in self._before:
            signal.signal(number, self._handle)

    def _handle(self, *_: object) -> None:
        if self._gentle and not self.asked.is_set():
            self.asked.set()
        else:
            logging.disable()  # the interrupted call to Spark would be logged with its whole stack
            raise KeyboardInterrupt


def beside(state: Path | str) -> Path:
    """The folder of this machine for what Spark writes beside the state: in it, if that is a folder."""
    return state if isinstance(state, Path) else Path("penstock-state", state.rpartition("/")[2])


def start_spark(state: Path | str, cores: int | None, console: Console, log: Path, memory: int | None = None) -> Engine:
    """An engine on a local session. Spark's own messages, now and later, go to the log."""
    own = beside(state)
    try:
        for folder in (".", WAREHOUSE):
            LocalStore(str(own)).make(folder)
        os.close(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))  # it may contain rows
    except OSError as error:
        raise unusable(error, own) from None
    try:
        with _stderr_to(log), busy(console, "Starting Spark .."):
            from penstock.engine import Engine  # noqa: PLC0415  (starts nothing, but takes a second to import)
            from penstock.spark.session import raise_only  # noqa: PLC0415

            raise_only()
            warehouse = str((own / WAREHOUSE).absolute())  # Spark creates it in the current folder by default
            return Engine.local(state, cores=cores, memory=memory, spark__sql__warehouse__dir=warehouse)
    except PenstockError:
        raise
    except Exception as error:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-10:]
        raise PenstockError("\n".join([f"Spark did not start: {brief(error)}", *said])) from error


def end_spark(engine: Engine) -> None:
    """Stop the engine's session, which may have ended by itself."""
    from penstock.spark.session import end  # noqa: PLC0415  (it was started, so all is imported)

    end(engine.spark)


def unusable(error: OSError, state: Path | str | None) -> PenstockError:
    """Why a file or folder was refused, and the remedy if it belongs to the state directory."""
    name = str(error.filename or state or "a file")
    msg = f"{name} cannot be used: {(error.strerror or str(error)).lower()}"
    if isinstance(state, Path) and Path(name).absolute().is_relative_to(state.absolute()):
        msg += (
            f"; {state} is to hold the state: give with --state a folder that is new, or that 'penstock run' has made"
        )
    return PenstockError(msg)


def busy(console: Console, doing: str) -> contextlib.AbstractContextManager[object]:
    """A progress indicator for long work; only in a terminal."""
    return console.status(doing) if console.is_terminal else contextlib.nullcontext()


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Redirect the stderr of the JVM that is started inside to a log; it keeps it."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def is_foreign(error: BaseException) -> bool:
    """Whether an error comes from Spark, or from the layer between it and Python, and not from a bug of ours."""
    return any(kind.__module__.partition(".")[0] in ("pyspark", "py4j", "pyarrow") for kind in type(error).__mro__)


def logged(error: BaseException, log: Path) -> str:
    """Append the whole stack of an error to Spark's log; returns where that is."""
    whole = error.__context__ if error.__suppress_context__ else None  # the part left out of the message
    with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as file:
        for one in (whole, error):
            if one is not None:
                traceback.print_exception(one, file=file)
        return f"details: {log}"
    return ""


def brief(error: BaseException) -> str:
    """The first meaningful lines of an error."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = "\n".join(lines[:3]) or type(error).__name__
    return text if isinstance(error, PenstockError) else f"{type(error).__name__}: {text}"
