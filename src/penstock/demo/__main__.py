"""`python -m penstock.demo`: start, watch, stop, summarize. It needs only Java, and leaves nothing behind."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from rich.console import Console

from penstock.cli.monitor import Status, console_for, follow, picture
from penstock.cli.script import load, register
from penstock.cli.session import SPARK_LOG, Interrupts, brief, busy, end_spark, start_spark
from penstock.demo.sensors import Sensors
from penstock.demo.shop import show
from penstock.demo.summary import Peak, greet, tell
from penstock.errors import PenstockError

PATIENCE_SECONDS = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.demo", description="Watch Penstock at work for a minute.")
    parser.add_argument("--seconds", type=float, default=45.0, help="how long to watch after the first step (45)")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the input, the script and the state")
    options = parser.parse_args(arguments)
    console, folder = console_for(), Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        with Interrupts() as interrupts:
            _demo(folder, options.seconds, console, interrupts)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        return 130
    except PenstockError as error:
        console_for(stderr=True).print(f"error: {error}", soft_wrap=True)
        return 1
    finally:
        if options.keep:
            console.print(f"Kept: {folder} (input/, sensors.sql, state/)", soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _demo(folder: Path, seconds: float, console: Console, interrupts: Interrupts) -> None:
    path = folder / "sensors.sql"
    text = resources.files("penstock.demo").joinpath("sensors.sql").read_text(encoding="utf-8")
    path.write_text(text.replace("'input/", f"'{folder}/input/"), encoding="utf-8")
    script = load(path)
    greet(console, script)
    sensors = Sensors(folder / "input")
    with interrupts.held():
        engine = start_spark(folder / "state", None, console, folder / SPARK_LOG)
    try:
        with busy(console, "Registering streams and queries .."):
            list(register(engine, script))
        sensors.start()
        run = engine.start("1 second")
        interrupts.gentle()
        peak = Peak()
        try:
            follow(run, console, seen=_until_read(sensors, seconds, interrupts.asked, peak))
            run.stop()
        except Exception as error:
            raise PenstockError(f"the run failed: {brief(error)}\nhint: --keep keeps Spark's log") from error
        tell(engine, script, picture(run), sensors.readings, peak, console)
        show(engine, folder / "shop", console)
    finally:
        if sensors.is_alive():
            sensors.finish()
        end_spark(engine)


def _until_read(sensors: Sensors, seconds: float, asked: threading.Event, peak: Peak) -> Callable[[Status], bool]:
    """True once the time is over (or Ctrl-C was pressed), the sensors are silent, and all they wrote is read."""
    ends: list[float] = []  # when to stop the sensors, then when to stop waiting

    def seen(status: Status) -> bool:
        now, read = time.monotonic(), sum(s["rows"] for s in status["streams"].values())
        peak.see(status["state"])
        if read and not ends:
            sensors.read_once.set()
            ends.append(now + seconds)
        if len(ends) < 2 and ((ends and now >= ends[0]) or asked.is_set()):
            sensors.finish()
            ends[:] = [now, now + PATIENCE_SECONDS]
        return len(ends) == 2 and (read >= len(sensors.readings) or now >= ends[1])

    return seen


if __name__ == "__main__":
    sys.exit(main())
