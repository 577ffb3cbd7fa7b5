"""The sink of a query: a folder, a function, or a sink of Spark's; and results that it cannot store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from penstock.catalog.analysis import Facts
from penstock.errors import RegistrationError
from penstock.model import Query, Sink
from penstock.storage.objects import is_url
from penstock.storage.place import local_path

Into = str | Path | Sink | Callable[[pa.Table, int], None]
CALLABLE = "<callable>"


def sink_of(name: str, target: Into | None) -> Sink | str | None:
    """The sink as registered; a folder elsewhere than here and in object stores is for Spark's own writer."""
    if callable(target):
        return CALLABLE
    if isinstance(target, Sink):
        return target.stored
    if target is None:
        return None
    if not isinstance(target, str | Path):
        raise RegistrationError(f"query {name!r}: into= is a path, a function or a Sink, and not {target!r}")
    if is_url(str(target)):
        return str(target).rstrip("/")
    remedy = "let Spark write it: into=Sink('parquet', path=..), in SQL INTO parquet OPTIONS (path '..')"
    return str(target) if target == CALLABLE else local_path(target, f"query {name!r}: into=", remedy)


def check_sink(name: str, query: Query, facts: Facts, into: Sink | str | None, *, ordered: bool) -> None:
    """Refuse names and orders that the sink, or the results themselves, cannot represent."""
    if into is not None and len(set(facts.names)) < len(facts.names):
        twice = next(n for n in facts.names if facts.names.count(n) > 1)
        msg = f"query {name!r} has two columns named {twice!r}; a sink needs distinct names: use AS"
        raise RegistrationError(msg)
    if ordered and isinstance(into, Sink):
        msg = f"query {name!r} is ordered, and a {into.format} sink keeps no order; deliver it to a path or a function"
        raise RegistrationError(msg)
    if ordered and query.aggregation is not None and query.aggregation.emit is not None:
        msg = (
            f"query {name!r} is ordered, and EMIT EARLY shows windows before their time has come; leave out one of both"
        )
        raise RegistrationError(msg)
