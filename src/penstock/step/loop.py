"""A run: all that happens to it, one event at a time, on one thread (decision 0038).

A batch, a change, the end: each comes out of the inbox, or is found when the thread looks around. Nothing else changes
the run, so nothing here needs a lock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from threading import Thread, get_ident
from typing import TypeVar

from penstock.errors import RegistrationError, SessionError, StateError
from penstock.planner.network import Network
from penstock.planner.stream_skew import leaders
from penstock.state.registry import QueryRecord, Registry
from penstock.step.core import Core
from penstock.step.happened import (
    AdvanceAsked,
    Asked,
    BatchArrived,
    BatchesEnded,
    ChangeAsked,
    CleanUpAsked,
    Event,
    ExecutorGone,
    RequestFound,
    ResumeAsked,
    StopAsked,
    TimePassed,
)
from penstock.step.inbox import Inbox
from penstock.step.ports import Batches, Requests
from penstock.storage.faults import plainly

LOOK_SECONDS = 0.25  # between two looks around
QUIET_SECONDS = 1.0
LEAST_PAID = 0.1  # of the time of a batch, for owed probes, when nothing is put off any more

_log = logging.getLogger("penstock.run")
T = TypeVar("T")


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Restarts:
    """How often, how long and why batches were stopped and started again under the run."""

    count: int = 0
    seconds: float = 0.0
    step: int = -1  # the last time
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    last_seconds: float = 0.0

    def after(self, step: int, seconds: float, columns: Mapping[str, Sequence[str]]) -> Restarts:
        return Restarts(self.count + 1, self.seconds + seconds, step, columns, seconds)


class Loop:
    """The events of one run. `ended` gets its outcome when it is over, after `release`.

    `seen` is called whenever an event has changed something, `idle` while nothing happens. `only_present` reads what is
    there at the start, and ends.
    """

    def __init__(
        self,
        core: Core,
        batches: Batches,
        requests: Requests,
        inbox: Inbox,
        *,
        only_present: bool = False,
        final: bool = False,
        seen: Callable[[], None] = _nothing,
        idle: Callable[[], None] = _nothing,
        release: Callable[[], None] = _nothing,
    ) -> None:
        self.core, self.batches, self.requests, self.inbox = core, batches, requests, inbox
        self.only_present, self.final = only_present, final
        self.seen, self.idle, self.release = seen, idle, release
        self.error: BaseException | None = None
        self.restarts = Restarts()
        self.ended: Future[None] = Future()
        self._over = self._started = False
        self._doing = False  # an event leads to steps just now
        self._owner: int | None = None  # the thread that takes events
        self._look_at = 0.0

    # -- called by any thread -----------------------------------------------------------------------------------------

    def ask(self, event: Asked) -> None:
        """Let an event happen between two steps, and wait until it has; raises why it could not."""
        if self._owner != get_ident():
            self.inbox.put(event)
        elif self._doing:
            raise StateError(
                f"the run on {self.core.store.root} is in the middle of a step, which has called this function: a sink "
                "must leave changes to another thread, and not wait for it"
            )
        else:
            self._happen(event)  # a request
        self.inbox.outcome(event.outcome)

    def stop(self, *, final: bool) -> None:
        """Let the run end after the running step, and wait for it; in the middle of a step only the former."""
        self.inbox.put(StopAsked(final))
        if self._owner != get_ident():
            self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the run; False if it has not come in time. Raises what has ended it."""
        if self._owner == get_ident() and timeout is None:
            raise StateError("a sink must not wait for the end of the run that calls it")
        if not self.inbox.wait(self.ended, timeout):
            return False
        self.ended.result()
        return True

    # -- the thread of the run ----------------------------------------------------------------------------------------

    def begin(self, begin: Callable[[], None], launch: Callable[[Callable[[], None]], Thread]) -> None:
        """Begin on the thread that starts the run, and launch `run`."""
        self._owner = get_ident()
        try:
            self._begin(begin)
            self._owner = None
            self.inbox.taker = launch(self.run)
        except BaseException as error:
            self._owner = None
            self.inbox.close(f"the run on {self.core.store.root} did not begin: {error}")
            if self._started:
                self.batches.stop()
            raise

    def _begin(self, begin: Callable[[], None]) -> None:
        """Requests that wait come before the first batch."""
        self._acting(begin)
        for key in self._waiting():
            self._happen(RequestFound(key))
        if self.error is not None:
            raise self.error
        self._acting(self._start)

    def run(self) -> None:
        """Take events until the run is over."""
        self._owner = get_ident()
        try:
            while not self._over:
                for event in self._next():
                    self._happen(event)
                    if self._over:
                        break
        except BaseException as error:  # noqa: BLE001  (must reach the user through the handle)
            self._fail(error)
        finally:
            self._end()
            self._owner = None  # another thread may get this number

    def _next(self) -> Iterator[Event]:
        """The next event of the inbox, or from time to time what has happened without anybody telling."""
        left = self._look_at - time.monotonic()
        event = self.inbox.take(left) if left > 0 else None
        if event is not None:
            yield event
            return
        self.core.store.check_owner()  # else it would be noticed only when there is something to commit
        if error := self.batches.gone(self.core.stepper.manifest.step):
            yield ExecutorGone(error)
        elif not self.batches.active:
            yield BatchesEnded()
        else:
            yield from map(RequestFound, self._waiting())
            yield TimePassed()
        self._look_at = time.monotonic() + LOOK_SECONDS

    def _happen(self, event: Event) -> None:
        """What each event leads to."""
        match event:
            case BatchArrived():
                self._settle(event.outcome, partial(self._step, partial(self._batch, event)))
            case ChangeAsked(change):
                self._settle(event.outcome, partial(self._change, change))
            case AdvanceAsked(stream, to):
                self._settle(event.outcome, partial(self._advance, stream, to))
            case ResumeAsked(query):
                self._settle(event.outcome, partial(self._resume, query))
            case CleanUpAsked():
                self._settle(event.outcome, self._clean_up)
            case StopAsked(final):
                self._stop(final=final)
            case RequestFound(key):
                self._take_request(key)
            case TimePassed():
                self._acting(self._tick)
            case BatchesEnded():
                self._acting(self._read_on)
            case ExecutorGone(error):
                self._fail(error)

    def _settle(self, outcome: Future[T], act: Callable[[], T]) -> None:
        """Act, and tell who waits for it."""
        if not outcome.running():
            outcome.set_running_or_notify_cancel()
        try:
            value = self._acting(act)
        except BaseException as error:  # noqa: BLE001  (whoever waits gets it)
            self.seen()
            outcome.set_exception(error)
        else:
            self.seen()
            outcome.set_result(value)

    def _acting(self, act: Callable[[], T]) -> T:
        self._doing = True
        try:
            return act()
        finally:
            self._doing = False

    def _step(self, act: Callable[[], T], refused: type[Exception] | tuple[()] = ()) -> T:
        """What fails here has failed in a step, or between the parts of a change: only a new start can go on."""
        try:
            return act()
        except refused:
            raise
        except BaseException as error:
            self._fail(error)
            raise

    # -- batches ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Read the streams of the present layout."""
        stepper = self.core.stepper
        stepper.heard = replace(stepper.heard, held=frozenset(), planned_before=True)
        self.batches.start(stepper.layout)
        self._started = True

    def _batch(self, batch: BatchArrived) -> float:
        stepper, began = self.core.stepper, time.monotonic()
        self.batches.begin(batch)
        stepper.run_batch(batch.rows, batch.number)
        counted = [report.counters.streams for report in stepper.last_reports]
        brought = {name for streams in counted for name, counts in streams.items() if counts.rows}
        manifest = stepper.manifest
        newest = {name: progress.newest for name, progress in manifest.progress.items()}
        self._hold(leaders(stepper.network, manifest.progress_values(), newest, brought))
        pause = self.batches.turn(batch, sum(counts.rows for streams in counted for counts in streams.values()))
        return max(0.0, pause - self._pay(time.monotonic() - began))

    def _pay(self, seconds: float) -> float:
        """Run some owed probes after a batch that took that long, until the next one is due; the seconds it took."""
        stepper, began = self.core.stepper, time.monotonic()
        relief = stepper.relief
        if stepper.manifest.owed and not relief.overload.put_off:
            spare = 0.0 if relief.allowed() == inf else relief.allowed() - seconds
            stepper.pay(max(spare / 2, LEAST_PAID * seconds))
        return time.monotonic() - began

    def _hold(self, streams: frozenset[str]) -> None:
        """Read nothing of these streams until others have caught up with them."""
        self.batches.hold(streams)
        stepper = self.core.stepper
        stepper.heard = stepper.heard.hold(self.batches.held, time.time())

    def _read_on(self) -> None:
        """All unthrottled input has been read: go on with the throttled streams, or end."""
        failure = self.batches.failure()
        if failure is not None:
            self._fail(failure)
        elif self.only_present and self.batches.held:
            self._start()
        else:
            self._over = True

    # -- between two batches ------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        stepper = self.core.stepper
        self.idle()
        if time.monotonic() - stepper.last_active < QUIET_SECONDS:
            return  # the next batch will expire state; a step of our own now would only delay it
        self.batches.leave()
        if self.batches.held and not self.batches.unread():
            self._hold(frozenset())  # the streams that others waited for bring nothing more
        if self.core.delivery.owed:
            stepper.committed.deliver()
        progress, names = stepper.manifest.progress, stepper.layout.order
        # Rows that came since somebody looked for them are not read yet, whatever is reported.
        waiting, looked = self.batches.unread(), self.batches.looked()
        if not waiting:
            stepper.pay(QUIET_SECONDS)
        stepper.tick(None if waiting else stepper.idle_progress(progress, names, looked))
        self.seen()

    def _advance(self, stream: str, to: int) -> None:
        self.batches.leave()
        self._step(partial(self.core.advance, stream, to))

    def _clean_up(self) -> None:
        self.batches.leave()
        self._step(self.core.stepper.clean_up)

    def _resume(self, query: QueryRecord) -> None:
        self.batches.leave()
        self._step(partial(self.core.stepper.resume, query), refused=RegistrationError)

    def _change(self, change: Callable[[], None]) -> None:
        """Change declarations, all or nothing; if streams must be read in another way, batches are started again."""
        core, batches = self.core, self.batches
        batches.leave()
        self._step(core.settle)
        try:
            registry, network = core.change(change)
        except BaseException:
            batches.revert()
            raise
        if not self._started:  # they begin with the columns that are needed now
            core.stepper.layout = core.lay_out(network)
        elif (columns := batches.lacking(core.stepper.network, network, core.stepper.layout)) is not None:
            self._step(partial(self._restart, registry, network, columns))
            return
        if network.version != core.stepper.network.version:
            self._step(partial(core.adopt, registry, network))

    def _restart(self, registry: Registry, network: Network, columns: Mapping[str, Sequence[str]]) -> None:
        """Stop batches between two steps, and start them with the present streams and columns."""
        began, core = time.monotonic(), self.core
        self.inbox.refuse_batches()
        self.batches.stop()
        core.stepper.layout = core.lay_out(network)
        core.adopt(registry, network)
        self.inbox.accept_batches()
        self._start()
        self.restarts = self.restarts.after(core.stepper.manifest.step, time.monotonic() - began, columns)
        _log.info(
            "Spark's query was started anew after step %d in %.1f s; columns read for it: %s",
            self.restarts.step, self.restarts.last_seconds, columns,
        )  # fmt: skip

    def _waiting(self) -> Sequence[str]:
        try:
            return self.requests.waiting()
        except Exception:  # noqa: BLE001  (what cannot be read now is tried again at the next look)
            return ()

    def _take_request(self, key: str) -> None:
        """Execute and answer a request, which cannot harm the run; if the run fails with it, the next one takes it."""
        try:
            answer = self.requests.do(key)
            if self.error is None:
                self.requests.answer(key, answer)
        except Exception:  # noqa: BLE001  (what cannot be read or answered now is tried again at the next look)
            return
        if not (answer.ok or self._started):  # nobody waits for the answer
            self.core.stepper.warnings.append(f"a request failed: {answer.text}")

    # -- the end ------------------------------------------------------------------------------------------------------

    def _stop(self, *, final: bool) -> None:
        self.final = self.final or final
        self._over = True
        if failure := self.batches.failure():  # before it is stopped
            self._fail(failure)

    def _fail(self, error: BaseException) -> None:
        """Record the first cause that ends the run; if nothing can run any more, that explains more than the rest."""
        self._over = True
        if self.error is not None:
            return
        cause = None if isinstance(error, SessionError) else self.batches.gone(self.core.stepper.manifest.step)
        if cause is None:
            self.error = plainly(error)
        else:
            cause.__context__, cause.__suppress_context__ = error, True  # for the log alone
            self.error = cause

    def _end(self) -> None:
        """Batches stop, what is complete is emitted, and nobody waits any more."""
        try:
            self._acting(self._finish)
        except BaseException as error:  # noqa: BLE001  (must reach the user through the handle)
            self._fail(error)
            if isinstance(self.error, SessionError):
                self.batches.abandon()
        try:
            self.release()
            self.seen()
        except BaseException as error:  # noqa: BLE001
            self._fail(error)
        finally:
            because = "" if self.error is None else f": {self.error}"
            self.inbox.close(f"the run on {self.core.store.root} has ended, and nothing was changed{because}")
            if self.error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(self.error)

    def _finish(self) -> None:
        self.inbox.refuse_batches()
        if error := self.batches.gone(self.core.stepper.manifest.step):
            raise error
        self.batches.stop()
        self.batches.leave()
        if any(event.final for event in self.inbox.remove(StopAsked)):
            self.final = True
        if self.error is None:
            if self.only_present:
                self.core.stepper.clean_up()  # what is there is answered, then
            self.core.end(final=self.final)
