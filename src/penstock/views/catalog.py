"""The views of one state directory, declared, explained and dropped, over sources that they share.

The definition of a view is stored at its first declaration: an equal declaration continues from its last version, a
different one under the same name is refused.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ChangesLostError, RegistrationError, did_you_mean
from penstock.model.secrets import masked
from penstock.model.view import Source, View
from penstock.planner.views.initial_load import Machine
from penstock.planner.views.shape_cost import Costs
from penstock.sql import parse_view
from penstock.sql.words import words
from penstock.storage.seal import seal, unseal
from penstock.storage.store import Store
from penstock.views.explain import explain_graph, explain_whole
from penstock.views.refresh.costs import known_costs, measured_costs, memory_of, room
from penstock.views.refresh.spark import Computed, Given, compute_on_spark
from penstock.views.refresh.whole import priced
from penstock.views.rows.files import to_frame
from penstock.views.rows.slices import Slices
from penstock.views.source_registry import Sources, copy_of
from penstock.views.sources.frame import MakeFrame
from penstock.views.sources.results import QueryResults
from penstock.views.sources.source import LiveReader
from penstock.views.store import DEFINITION, ViewStore, forget_versions
from penstock.views.view import Parts, ViewHandle

_SETTLE_EVERY = 20  # refreshes


class ViewCatalog:
    """The declarations of views in one process."""

    def __init__(
        self,
        spark: SparkSession | None,
        store: Store,
        query: Callable[[str], QueryResults] | None = None,
        may_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`may_change` raises if no view may be defined or dropped now; existing ones can be refreshed and read."""
        self.spark, self.store, self._may_change = spark, store, may_change
        self.views: dict[str, ViewHandle] = {}
        self._opened = Sources(spark, store, query)
        self._refreshes = 0
        self._settling = threading.Lock()

    # -- sources ----------------------------------------------------------------------------------------------------

    @property
    def sources(self) -> dict[str, Source]:
        """The declared sources by name."""
        return self._opened.declared

    def add_source(self, source: Source, frame: DataFrame | MakeFrame | None = None) -> Source:
        """Declare a source; by default with the columns of the table, file, DataFrame or query."""
        return self._opened.add(source, frame)

    def drop_source(self, name: str) -> None:
        """Drop a source that no view reads, with the capture of its changes."""
        self._opened.known(name)
        for view in self.views.values():
            if any(node.source == name for node in view.view.nodes):
                raise RegistrationError(f"view {view.name!r} reads source {name!r}; drop the view first")
        self._opened.drop(name)
        self.store.delete_folder(copy_of(name))

    def reader(self, name: str) -> LiveReader:
        """The live connection to a source, opened on first use."""
        return self._opened.reader(name)

    # -- views ------------------------------------------------------------------------------------------------------

    def add_view(
        self, sql: str, name: str, *, strategy: str = "auto", computed: str = "auto",
        script: str | None = None, line: int = 1, column: int = 1,
    ) -> ViewHandle:  # fmt: skip
        """Declare a view; its first refresh computes it."""
        if not name or name.startswith("_"):
            raise RegistrationError(f"{name!r} is no name for a view; names that begin with _ are reserved")
        if computed == "spark" and not self.store.has_paths:
            raise RegistrationError(
                f"view {name!r} is to be computed by Spark, which needs a folder for its rows, and {self.store.root} "
                "is no folder; leave out computed='spark', or use a state directory on a disk"
            )
        view = parse_view(sql, self.sources, name=name, script=script, line=line, column=column)
        known = self.views.get(name)
        if known is not None and known.store.stale:
            self.views.pop(name).close()
        elif known is not None:
            if words(known.view.sql) == words(sql):
                return known
            raise RegistrationError(f"view {name!r} is declared with another SELECT; drop it first")
        folder = f"views/{_folder(name)}"
        identity = self._define(view, folder)
        readers = {node.source: self.reader(node.source) for node in view.nodes}

        def on_spark(wanted: View, sources: Mapping[str, Given], machine: Machine) -> Computed:
            scratch = Path(self.store.path(f"{folder}/scratch"))
            self.store.make(f"{folder}/scratch")
            return compute_on_spark(self._opened.session, wanted, sources, scratch, machine, self._measure)

        given = (
            None if self.spark is None or not self.store.has_paths else on_spark
        )  # Spark needs a folder for its rows
        parts = Parts(view, readers, self.store, folder, given, self._machine, self._settle, self._frame, identity)
        self.views[name] = ViewHandle(parts, strategy=strategy, computed=computed)
        return self.views[name]

    def view(self, name: str) -> ViewHandle:
        found = self.views.get(name)
        if found is None:
            raise RegistrationError(f"there is no view {name!r}; {did_you_mean(name, self.views)}")
        return found

    def explain_view(self, sql: str, name: str, *, script: str | None = None, line: int = 1, column: int = 1) -> str:
        """The graph of a view, and how it would be computed whole. Opens no source, captures and writes nothing."""
        view = parse_view(sql, self.sources, name=name, script=script, line=line, column=column)
        facts = ViewStore(self.store, f"views/{_folder(name)}", pa.schema([])).newest.facts
        found = None
        if len(view.nodes) > 1:
            found = priced(view, self.sources, self._opened.estimate, facts, self._machine())
        return "\n".join([*explain_graph(view), *explain_whole(view, facts, found)])

    def drop_view(self, name: str, *, missing: bool = False) -> None:
        """Drop a view and its rows, whether declared here or stored before; `missing`: it need not exist."""
        folder = f"views/{_folder(name)}"
        if name not in self.views and not self.store.names(folder):
            if missing:
                return
            self.view(name)
        self._may_change()
        if name in self.views:
            self.views.pop(name).close()
        self._discard(folder)

    def close(self) -> None:
        """Stop refreshing, and close all connections."""
        for view in self.views.values():
            view.close()
        self._opened.close()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _discard(self, folder: str) -> None:
        """Delete a view while no version of it is being installed; for readers it ends with its definition."""
        if self.store.names(folder):
            with Slices(self.store, f"{folder}/slices").writing():
                self.store.delete(f"{folder}/{DEFINITION}")
                self.store.sync([f"{folder}/."])
                self.store.delete_folder(folder)

    def _define(self, view: View, folder: str) -> str:
        """Store the definition of a view, unless it is stored already; returns its id."""
        sources = {node.source: self.sources[node.source] for node in view.nodes}
        body: dict[str, Any] = {
            "sql": words(view.sql),
            "sources": {name: _identity(s) for name, s in sorted(sources.items())},
            "id": uuid.uuid4().hex,
        }
        file = f"{folder}/{DEFINITION}"
        if not self.store.exists(file):
            self._may_change()
            with Slices(self.store, f"{folder}/slices").writing():
                if not self.store.exists(file):
                    forget_versions(self.store, folder)
                    self.store.put_if_absent(file, seal(body))
                    return str(body["id"])
        known = unseal(self.store.read(file), self.store.label(file))
        if known["sql"] != body["sql"]:
            raise RegistrationError(
                f"view {view.name!r} was declared with another SELECT in {self.store.root}; drop it first"
            )
        for name, identity in body["sources"].items():
            if known["sources"].get(name) != identity:
                msg = (
                    f"source {name!r} of view {view.name!r} is not the one that {self.store.root} was filled from; "
                    "drop the view, or declare the source as before"
                )
                raise RegistrationError(msg)
        return str(known.get("id", ""))

    def _machine(self) -> Machine:
        """Spark's costs, as far as measured; without Spark, a machine with the cores of this one."""
        cores = os.cpu_count() or 1 if self.spark is None else self.spark.sparkContext.defaultParallelism
        known = known_costs(self.store, cores)
        memory = inf if self.spark is None else memory_of(self.spark)
        return Machine(known or Costs(), cores, memory, room=room(), calibrated=known is not None)

    def _measure(self) -> Costs:
        return measured_costs(self.store, self._opened.session)

    def _frame(self, rows: pa.Table) -> DataFrame:
        return to_frame(self._opened.session, rows)

    def _settle(self) -> None:
        """From time to time, let sources drop changes that every view has applied; no refresh waits for it."""
        if not self._settling.acquire(blocking=False):
            return
        try:
            self._refreshes += 1
            if self._refreshes % _SETTLE_EVERY:
                return
            for name, reader in list(self._opened.readers.items()):
                using = [v for v in list(self.views.values()) if any(node.source == name for node in v.view.nodes)]
                try:
                    taken = [v.positions().get(name) for v in using]
                except ChangesLostError:
                    continue  # its own next refresh recomputes it
                if taken and all(position is not None for position in taken):
                    reader.settle(min(position for position in taken if position is not None))
        finally:
            self._settling.release()


def _identity(source: Source) -> list[Any]:
    """What identifies a source; how it is reached may change."""
    options = {k: v for k, v in masked(source.options) if k in ("table", "path", "query", "capture", "format", "sign")}
    columns = [[c.name, c.type] for c in source.columns]
    return [source.system, options, columns, source.changes, source.change_table]


def _folder(name: str) -> str:
    return quote(name, safe="")
