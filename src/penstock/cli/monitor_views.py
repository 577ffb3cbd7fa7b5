"""The display while views are maintained: a line for each refresh that changed something."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from penstock.cli.session import brief

if TYPE_CHECKING:
    from penstock.views.view import ViewHandle

_PAUSE = 0.2


def refresh_once(views: Mapping[str, ViewHandle], *, since: float, stop: threading.Event) -> Iterator[str]:
    """Refresh each view that has not read its sources since then; yields the errors, view by view."""
    for name, view in views.items():
        if stop.is_set():
            return
        if (view.status()["refreshed_at"] or 0.0) >= since:
            continue
        try:
            view.refresh()
        except Exception as error:  # noqa: BLE001  (any error of a source; the other views are refreshed nevertheless)
            yield f"view {name!r} was not refreshed: {brief(error)}"


def follow_views(
    views: Mapping[str, ViewHandle], console: Console, *, since: float, seconds: float | None, stop: threading.Event
) -> None:
    """Print each refresh after `since` with changes, until the time is over or `stop` is set; then the status."""
    seen = dict.fromkeys(views, since)
    troubles: dict[str, str | None] = dict.fromkeys(views)
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        for name, view in views.items():
            status = view.status()
            if (status["changed_at"] or 0.0) > seen[name]:
                seen[name] = status["changed_at"]
                console.print(told(status), highlight=False)
            if status["error"] != troubles[name]:
                troubles[name] = status["error"]
                if status["error"]:
                    console.print(f"{name}: refresh failed, and is tried again: {status['error']}", style="red")
        left = _PAUSE if end is None else min(_PAUSE, end - time.monotonic())
        if left <= 0 or stop.wait(left):
            break
    console.print(views_table([view.status() for view in views.values()]))


def told(status: Mapping[str, Any]) -> str:
    """One refresh in one line."""
    last = status["last"]
    whole = last.get("scanned")
    how = "computed" if whole else f"refreshed by {last['strategy']}, {last['requests']} requests"
    rows = f"{sum(whole):,} rows read" if whole else f"{sum(last['changed']):,} rows changed in its sources"
    spent = f"{last['seconds'] * 1000:.0f} ms"
    return f"{status['name']}: version {status['version']}, {how}, {spent}; {rows}, {last['rows']:,} joined rows"


def views_table(statuses: list[dict[str, Any]]) -> Table:
    """The status of the views."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("view", "version", "refreshed", "every", "files", "bytes"):
        table.add_column(heading, justify="left" if heading == "view" else "right")
    for status in statuses:
        age = "never" if status["age"] is None else f"{status['age']:.1f} s ago"
        every = "on demand" if status["every"] is None else f"{status['every']:g} s"
        table.add_row(status["name"], str(status["version"]), age, every, str(status["files"]), f"{status['bytes']:,}")
    return table
