import logging
import threading

from penstock.runtime.tasks import warm


class Session:
    """Stands in for Spark: notes which thread does what, and fails if asked to."""

    def __init__(self, failing=""):
        self.did, self.failing, self.over = {}, failing, threading.Event()

    def __getattr__(self, name):
        def call(*_):
            self.did[name] = threading.current_thread()
            if name == self.failing:
                self.over.set()
                raise OSError("no worker\nand a stack")
            if name == "collect":
                self.over.set()
            return self

        return call


def test_only_the_job_runs_beside_so_that_no_two_threads_import_what_plans_it():
    session = Session()
    warm.warm_workers(session, 2)
    session.over.wait(60)
    assert session.did["range"] is session.did["mapInArrow"] is threading.current_thread()
    assert session.did["collect"].name == "penstock-warm"


def test_what_fails_is_logged_in_a_line(monkeypatch, caplog):
    monkeypatch.setattr(warm, "gone", lambda _: None)
    for failing in ("mapInArrow", "collect"):
        session = Session(failing)
        with caplog.at_level(logging.WARNING, "penstock.warm"):
            warm.warm_workers(session, 2)
            session.over.wait(60)
            for thread in threading.enumerate():
                if thread.name == "penstock-warm":
                    thread.join(60)
        assert caplog.messages == ["Python workers could not be started ahead of time: no worker"]
        caplog.clear()
