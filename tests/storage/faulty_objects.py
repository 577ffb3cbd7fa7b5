"""An object store that answers late, fails, and loses its answers: by chance from a seed, or as a test says."""

import time

from penstock.storage.objects import Objects, ObjectStoreError


class FaultyObjects(Objects):
    """`fails`: the share of requests without effect; `unclear`: of puts that succeed without an answer; in seconds
    `latency`. `requests` counts them by kind. `lost` answers are those of the next puts.
    """

    def __init__(self, client, random=None, *, fails=0.0, unclear=0.0, latency=0.0, url="memory:", config=None):
        super().__init__(url, config or {}, client)
        self.random, self.fails, self.unclear, self.latency = random, fails, unclear, latency
        self.lost, self.requests = 0, {}

    def __reduce__(self):
        raise TypeError

    def create(self, name, data, writer):
        super().create(name, data, writer)
        if self.lost or self._happens(self.unclear):
            self.lost = max(self.lost - 1, 0)
            raise ObjectStoreError(f"{self.label(name)}: the answer was lost")

    def put(self, name, data):
        super().put(name, data)
        if self._happens(self.unclear):
            raise ObjectStoreError(f"{self.label(name)}: the answer was lost")

    def delete(self, names):
        self._before("delete", names[0])
        super().delete(names)

    def below(self, folder):
        self._before("list", folder)
        yield from super().below(folder)

    def _request(self, operation, name, *given, **options):
        self._before(operation, name)
        return super()._request(operation, name, *given, **options)

    def _before(self, operation, name):
        self.requests[operation] = self.requests.get(operation, 0) + 1
        if self.latency:
            time.sleep(self.latency)
        if self._happens(self.fails):
            raise ObjectStoreError(f"{self.label(name)}: no answer")

    def _happens(self, share):
        return share > 0 and self.random.random() < share
