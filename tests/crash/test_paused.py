"""A process that is stopped (SIGSTOP) loses its lease; when it goes on, it commits and delivers nothing."""

import os
import signal
import subprocess
import sys
import time
import uuid

import pytest

from tests.crash.paused import SECONDS, SQL, STREAMS, engine_on, rows_of_step
from tests.named import evaluate
from tests.oracle import bag
from tests.storage.s3_server import server


@pytest.fixture
def url(monkeypatch):
    for name, value in server().environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{uuid.uuid4().hex}"


class Process:
    def __init__(self, url, cache, steps=0):
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.paused", url, str(cache), str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def says(self, words):
        """What it says next that begins so; nothing else than deliveries comes before."""
        while True:
            line = self.popen.stdout.readline().strip()
            if line.startswith(words):
                return line
            assert line.startswith("delivered"), line

    def take(self, step):
        print(step, file=self.popen.stdin, flush=True)

    def end(self):
        self.popen.kill()
        self.popen.communicate()


def wanted(steps):
    streams = {s.name: s for s in STREAMS}
    rows = {name: [row for step in range(steps) for row in rows_of_step(step)[name]] for name in streams}
    return bag(evaluate({"q": SQL}, streams, rows)["q"])


def test_a_paused_engine_that_wakes_after_its_lease_was_taken_over_commits_nothing(url, tmp_path):
    paused = Process(url, tmp_path / "one")
    try:
        paused.says("owns it")
        for step in range(3):
            paused.take(step)
            paused.says("step ")
        os.kill(paused.popen.pid, signal.SIGSTOP)
        paused.take(3)  # what it does as soon as it wakes
        delivered = []
        other = engine_on(url, str(tmp_path / "two"), lambda step, table: delivered.append(step))
        other.source.given = [rows_of_step(step) for step in range(3)]
        began = time.monotonic()
        other.start()
        assert time.monotonic() - began >= SECONDS * 0.9
        for step in range(3, 5):
            other.take(**rows_of_step(step))
        manifest = other.manifest
        os.kill(paused.popen.pid, signal.SIGCONT)
        said = paused.says("LeaseLostError")
        assert f"has lost the lease on {url} to process {os.getpid()}, which has taken over after 3 seconds" in said
        assert paused.popen.wait(30) == 0
        assert other.manifest == manifest
        other.take(**rows_of_step(5))
        assert bag(other.results("q")) == wanted(6)
        assert len(set(delivered)) == len(delivered)
        other.stop(final=True)
        assert bag(other.results("q")) == wanted(6)
    finally:
        paused.end()


def test_of_two_that_start_one_wins_and_the_other_says_who(url, tmp_path):
    both = [Process(url, tmp_path / name) for name in ("one", "two")]
    try:
        ended = [None, None]
        while not any(ended):
            ended = [each.popen.poll() for each in both]
            time.sleep(0.1)
        loser, owner = both if ended[0] else both[::-1]
        owner.says("owns it")
        assert f"{url} is in use by process {owner.popen.pid}; stop it first" in loser.popen.stderr.read()
        owner.take(0)
        owner.says("step ")
    finally:
        for each in both:
            each.end()


def test_who_is_killed_is_followed_after_the_time_of_its_lease(url, tmp_path):
    first = Process(url, tmp_path / "one")
    try:
        first.says("owns it")
        for step in range(2):
            first.take(step)
            first.says("step ")
    finally:
        first.end()
    other = engine_on(url, str(tmp_path / "two"), lambda step, table: None)
    other.source.given = [rows_of_step(step) for step in range(2)]
    other.start()
    other.take(**rows_of_step(2))
    assert bag(other.results("q")) == wanted(3)
    other.stop()
    began = time.monotonic()
    third = engine_on(url, str(tmp_path / "two"), lambda step, table: None)
    third.source.given = [rows_of_step(step) for step in range(3)]
    third.start()  # after a release nobody waits
    assert time.monotonic() - began < SECONDS
    third.stop(final=True)
    assert bag(third.results("q")) == wanted(3)
