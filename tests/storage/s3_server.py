"""A real server that speaks S3, on loopback, for tests: versitygw, if it is installed (`make s3-server`)."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from functools import lru_cache
from pathlib import Path

import pytest

from penstock.storage.cache import Cache
from penstock.storage.lease import Times
from penstock.storage.object import ObjectStore
from penstock.storage.objects import Objects

BINARY = "versitygw"
VARIABLE = "PENSTOCK_S3_SERVER"
KEYS = {"ROOT_ACCESS_KEY": "penstock-test", "ROOT_SECRET_KEY": "no-secret-of-anybody"}


def binary():
    """The server's program; None if there is none."""
    places = [os.environ.get(VARIABLE), shutil.which(BINARY), str(Path.home() / "go" / "bin" / BINARY)]
    return next((place for place in places if place and Path(place).is_file()), None)


class Server:
    """A server of its own with one bucket, until it is stopped."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-s3-")
        Path(self.folder.name, "data", "bucket").mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [binary(), "--port", f"127.0.0.1:{self.port}", "posix", str(Path(self.folder.name, "data"))],
            env={**os.environ, **KEYS}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError("versitygw does not answer")

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    @property
    def config(self):
        """What a client needs beside the URL."""
        return {
            "endpoint": f"http://127.0.0.1:{self.port}", "region": "us-east-1",
            "access_key_id": KEYS["ROOT_ACCESS_KEY"], "secret_access_key": KEYS["ROOT_SECRET_KEY"],
        }  # fmt: skip

    @property
    def environment(self):
        """The same for another process."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEYS["ROOT_ACCESS_KEY"], "AWS_SECRET_ACCESS_KEY": KEYS["ROOT_SECRET_KEY"],
        }  # fmt: skip


@lru_cache(maxsize=1)
def server():
    """The server of this test process, which ends with it; skips the test if there is none."""
    pytest.importorskip("obstore", reason="pip install 'penstock[object]'")
    if binary() is None:
        pytest.skip(f"there is no {BINARY}: `make s3-server` installs it, or set {VARIABLE} to its path")
    import atexit

    found = Server()
    atexit.register(found.stop)
    return found


def s3_store(cache, url=None, **times):
    """A store on that server, at a place of its own unless one is given."""
    place = url or f"s3://bucket/{uuid.uuid4().hex}"
    return ObjectStore(Objects(place, server().config), Cache(str(cache)), Times(**times))
