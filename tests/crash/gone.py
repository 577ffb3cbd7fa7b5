"""A program whose Spark session goes away at many points of a run; what the engine says then, one JSON line a case."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession

from penstock import Engine
from penstock.run import Run
from penstock.step.stepper import Stepper
from tests.crash.scene import answers_of, engine_of, source
from tests.spark.replay import quick_session

QUERIES = {"alone": "SELECT v FROM b WHERE v > 1", "to_function": "SELECT v, ts FROM a"}


def said(call: Callable[[], object]) -> list[str]:
    """The error of a call: its kind and its text."""
    try:
        return ["no error", str(call())]
    except Exception as error:  # noqa: BLE001  (whatever it is, it is shown)
        return [type(error).__name__, str(error)]


def ended(case: str, engine: Engine, run: Run) -> None:
    waited = said(lambda: run.await_termination(60))
    print(
        json.dumps(
            {
                "case": case,
                "waited": waited,
                "stopped": said(run.stop),
                "active": run.active or run.status()["active"],
                "status": run.status()["error"],
                "results": said(lambda: engine.results("alone")),
                "again": said(engine.start),
            }
        ),
        flush=True,
    )


def stop(spark: SparkSession, *_: object) -> None:
    spark.stop()


def at_point(spark: SparkSession, wanted: str) -> Callable[[str, int], None]:
    """Stops the session when a step has come so far."""

    def reached(point: str, _step: int) -> None:
        if point == wanted:
            spark.stop()

    return reached


def in_tick(spark: SparkSession) -> Callable[..., bool]:
    plain = Stepper.tick

    def tick(stepper: Stepper, *given: object, **named: object) -> bool:
        spark.stop()
        return plain(stepper, *given, **named)

    return tick


def main(root: Path, cases: Sequence[str]) -> None:
    for batches, case in enumerate(cases, start=1):
        spark = quick_session()
        source(root, batches)
        engine = engine_of(spark, root, QUERIES)
        if case in ("before_job", "after_job", "after_manifest"):
            module = "commit" if case == "after_manifest" else "stepper"
            with patch(f"penstock.step.{module}.kill_point", at_point(spark, case)):
                ended(case, engine, engine.start("0 seconds"))
        elif case == "during the job":
            job = spark.sparkContext.statusTracker()
            run = engine.start("0 seconds")
            while not job.getActiveJobsIds() and run.status()["batch"] < batches - 1:
                pass
            spark.stop()
            ended(case, engine, run)
        elif case == "tick":
            with patch.object(Stepper, "tick", in_tick(spark)):
                ended(case, engine, engine.start("0 seconds"))
        elif case == "delivery":
            engine.query(QUERIES["to_function"], name="stopping", into=partial(stop, spark))
            ended(case, engine, engine.start("0 seconds"))
            spark = quick_session()
            engine = engine_of(spark, root, QUERIES)
            engine.drop("stopping")
            engine.start(available_now=True).await_termination()
        else:
            run = engine.start("0 seconds")
            while run.status()["batch"] < batches - 1:
                pass
            if case == "clean":
                answers = {
                    name: sorted(map(list, found.elements())) for name, found in answers_of(engine, QUERIES).items()
                }
                print(json.dumps({"case": case, "answers": answers}, default=str), flush=True)
            else:
                spark.stop()
                ended(case, engine, run)
    spark.sparkContext._gateway.proc.kill()
    ended("killed", engine, run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
