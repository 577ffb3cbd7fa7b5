"""A process that refreshes a view and dies by SIGKILL in the middle of a change that it makes to its state."""

import os
import signal
import sys

from penstock.model import Column
from penstock.model.view import Source
from penstock.storage.local import LocalStore
from penstock.views.catalog import ViewCatalog

COLUMNS = (Column("k", "bigint"), Column("v", "string"))
TOTALS = "SELECT a.v, count(*) AS n, max(b.v) AS last, sum(b.k) AS total FROM a, b WHERE a.k = b.k GROUP BY a.v"
PAIRS = "SELECT a.v AS one, b.v AS other FROM a, b WHERE a.k = b.k"


def opened() -> ViewCatalog:
    """Two folders of Parquet files beside the state, all in the working directory, and two views of them."""
    made = ViewCatalog(None, LocalStore("state", durable=False), None)
    for name in ("a", "b"):
        made.add_source(Source(name, COLUMNS, "parquet", (("path", name),)))
    made.add_view(TOTALS, "totals", strategy="batch")
    made.add_view(PAIRS, "pairs", strategy="batch")
    return made


def mortal(last: int) -> list[str]:
    """From now on the process dies at the change of that number; the changes so far."""
    done: list[str] = []

    def count(what: str) -> bool:
        done.append(what)
        return len(done) == last

    def write(self, name, data, inner=LocalStore.write):
        if count(f"write {name}"):
            inner(self, name, bytes(data)[: len(data) // 2])
            die()
        inner(self, name, data)

    def link(source, target, inner=os.link):
        dying = count(f"link {target}")
        inner(source, target)
        if dying:
            die()

    def delete(self, name, inner=LocalStore.delete):
        if count(f"delete {name}"):
            die()
        inner(self, name)

    LocalStore.write, LocalStore.delete, os.link = write, delete, link
    return done


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    catalog = opened()
    counted = mortal(int(sys.argv[1]))
    for view in catalog.views.values():
        view.refresh()
    print(*counted, sep="\n")
