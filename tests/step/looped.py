"""A run in one process: the loop over the engine for tests, and batches that a thread brings, as Spark's callback does.

The thread waits for each outcome, and who stops it waits for the thread: whoever forgets one of them hangs here too.
"""

import contextlib
import threading
import time
from concurrent.futures import Future
from functools import partial

from penstock.catalog.requests import RequestLog
from penstock.errors import SessionError
from penstock.requests import Requests
from penstock.results.open_sink import open_sink
from penstock.results.sink_queries import sink_tables
from penstock.step.core import Core, committed
from penstock.step.happened import AdvanceAsked, BatchArrived, ChangeAsked
from penstock.step.inbox import Inbox
from penstock.step.layout import lay_out
from penstock.step.loop import Loop
from penstock.testing.engine import Engine

SECONDS = 20.0  # beyond which a test hangs


class Fed:
    """Batches of the source for tests; see `step.ports.Batches`."""

    def __init__(self, log, inbox, *, only_present=False):
        self.log, self.inbox, self.only_present = log, inbox, only_present
        self.held, self.thread, self.error, self.dead = frozenset(), None, None, None
        self.starts, self.reverted, self.marks = 0, 0, []

    def start(self, layout):
        self.layout, self.error = layout, None
        self.starts += 1
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._bring, args=(self.stopped,), daemon=True)
        self.thread.start()

    def _bring(self, stopped):
        try:
            while not stopped.is_set():
                number = self.log.planned()
                if number is None:
                    if self.only_present:
                        return
                    time.sleep(0.001)
                    continue
                event = BatchArrived(self.log.rows(number), number)
                self.inbox.put(event)
                self.inbox.pause(self.inbox.outcome(event.outcome))
                self.log.done(number)
        except BaseException as error:  # noqa: BLE001  (as Spark's query keeps it)
            self.error = error

    def stop(self):
        self.stopped.set()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive(), "a batch waits for an outcome that nobody sets"

    @property
    def active(self):
        return self.thread.is_alive()

    def failure(self):
        return self.error if not self.active else None

    def gone(self, step):
        return None if self.dead is None else SessionError(f"{self.dead}, after step {step}")

    def abandon(self):
        self.stopped.set()

    def lacking(self, before, after, layout):
        streams = set(after.streams) - {d.name for d in after.derived_streams}
        return None if streams == set(layout.order) else {}

    def revert(self):
        self.reverted += 1

    def unread(self):
        return False

    admitted = {}  # noqa: RUF012  (never changed)

    def looked(self):
        return time.time()

    def hold(self, streams):
        self.held = streams

    def begin(self, batch):
        self.marks.append(batch.number)

    def turn(self, batch, rows):
        return 0.0

    def leave(self):
        if self.marks[-1:] != [None]:
            self.marks.append(None)


class Looped:
    """An engine for tests whose run is a loop on a thread of its own."""

    def __init__(self, engine: Engine, **options):
        self.engine, self.store, catalog = engine, engine.store, engine.catalog
        self.inbox, log = Inbox(), engine.source.on(engine.store)
        self.batches = Fed(log, self.inbox, only_present=options.get("only_present", False))
        self.log = log

        def tables(queries, part):
            return sink_tables(catalog, self.stepper.manifest, queries, part)

        opened = partial(open_sink, tables=tables, store=engine.store, owner="o")
        self.core = Core(
            engine.executor, log, catalog, engine.store, opened,
            lambda network: lay_out([s for n, s in network.streams.items() if n in catalog.opened]), tasks=engine.tasks,
        )  # fmt: skip
        self.stepper, self.delivery = self.core.stepper, self.core.delivery
        self.requests = RequestLog(engine.store)
        asked = Requests(self.requests, catalog, engine.execute)
        self._stack = contextlib.ExitStack()
        self.loop = Loop(self.core, self.batches, asked, self.inbox, **{"release": self._stack.close, **options})

    def start(self):
        self.engine.run = self
        self._stack.enter_context(self.store.owner_lock())
        self.loop.begin(self._begin, self._launch)
        return self

    def _begin(self):
        self.core.begin(committed(self.store, self.engine.catalog, self.log))

    def _launch(self, run):
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def change(self, change):
        self.loop.ask(ChangeAsked(change))

    def advance(self, stream, to):
        self.loop.ask(AdvanceAsked(stream, to))

    def stop(self, *, final=False):
        self.loop.stop(final=final)
        self.engine.run = None

    def feed(self, **rows):
        self.engine.source.given.append(rows)

    def fed(self, **rows):
        """Rows whose step is committed when this returns."""
        self.feed(**rows)
        upto = len(self.engine.source.given)
        until(lambda: self.log._upto(self.stepper.manifest.last_batch) >= upto)


def until(true):
    limit = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < limit, "it never came"
        time.sleep(0.001)


def together(*acts):
    """Acts of several threads at the same time; returns what they raised, in order."""
    gate, outcomes = threading.Barrier(len(acts)), [Future() for _ in acts]

    def run(act, outcome):
        gate.wait()
        try:
            outcome.set_result(act())
        except BaseException as error:  # noqa: BLE001
            outcome.set_exception(error)

    for act, outcome in zip(acts, outcomes, strict=True):
        threading.Thread(target=run, args=(act, outcome), daemon=True).start()
    return [outcome.exception(SECONDS) for outcome in outcomes]
