"""The process that Spark starts Python workers from: with it they begin with what steps need, instead of loading it each for itself.

A worker is a copy of this process. So modules and compiled kernels are loaded once, here, before there is anything else in the process that could
get in their way, and lie in memory once however many workers there are. A session has this daemon by `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import sys


def load() -> None:
    """Load all that tasks of steps use."""
    import numpy  # noqa: F401, ICN001, PLC0415
    import pandas  # noqa: F401, ICN001, PLC0415
    import pyarrow.parquet  # noqa: F401, PLC0415
    import pyspark.worker  # noqa: F401, PLC0415

    import penstock.step.finish  # noqa: PLC0415
    import penstock.step.run_mapper  # noqa: PLC0415
    import penstock.step.worker  # noqa: F401, PLC0415

    # Spark lets a worker collect garbage behind every task; what is loaded for good need not be looked through, nor be copied for that.
    if gc.get_freeze_count() == 0:
        gc.collect()
        gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    if sys.platform == "linux":  # elsewhere libraries of the system may not outlive a fork
        load()
    manager()
