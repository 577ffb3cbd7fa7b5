"""The process that Spark forks Python workers from: with it they start with everything loaded that steps need.

A worker is a copy of this process, so modules and compiled kernels are loaded once for all workers (decision 0026).
`spark.python.daemon.module` names this module.
"""

from __future__ import annotations

import gc
import sys


def load() -> None:
    """Load everything that tasks of steps use."""
    import numpy  # noqa: F401, ICN001, PLC0415
    import pandas  # noqa: F401, ICN001, PLC0415
    import pyarrow.parquet  # noqa: F401, PLC0415
    import pyspark.worker  # noqa: F401, PLC0415

    import penstock.step.finish  # noqa: PLC0415
    import penstock.step.run_mapper  # noqa: PLC0415
    import penstock.step.worker  # noqa: F401, PLC0415

    # Spark lets a worker collect garbage after every task; permanent objects need not be scanned or copied for that.
    if gc.get_freeze_count() == 0:
        gc.collect()
        gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    if sys.platform == "linux":  # elsewhere system libraries may not survive a fork
        load()
    manager()
