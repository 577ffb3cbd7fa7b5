"""A driver process that may die at any moment: answers the scene's queries over the folder it is given."""

import sys
from pathlib import Path

from penstock.step import loop
from tests.crash.scene import engine_of
from tests.spark.replay import quick_session

if __name__ == "__main__":
    assert loop.QUIET_SECONDS
    loop.QUIET_SECONDS = 1e9  # no ticks between batches, so that step numbers are known beforehand
    engine = engine_of(quick_session(), Path(sys.argv[1]))
    assert engine.start(available_now=True, final="final" in sys.argv).await_termination(300)
    print(f"ended at step {engine.manifest().step}")
