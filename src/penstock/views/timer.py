"""Periodic calls in a thread of their own, until stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress


class Timer(threading.Thread):
    """Refreshes a view periodically, from the start of the last refresh on. A failed one is repeated next time."""

    def __init__(self, name: str, refresh: Callable[[], object], seconds: float) -> None:
        super().__init__(name=f"penstock-refresh-{name}", daemon=True)
        self.refresh, self.seconds = refresh, seconds
        self._asked = threading.Event()

    def run(self) -> None:
        wait = 0.0
        while not self._asked.wait(wait):
            began = time.monotonic()
            with suppress(Exception):  # any error of a source; status shows it, and the next turn tries again
                self.refresh()
            wait = max(0.0, self.seconds - (time.monotonic() - began))

    def finish(self) -> None:
        self._asked.set()
        if threading.current_thread() is not self:
            self.join()
