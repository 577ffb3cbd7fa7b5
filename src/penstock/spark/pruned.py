"""Which columns Spark reads of each stream: all of them, or only those that some query needs.

A stream keeps all columns if its rows may be rejected and stored; where mappers read the columns of files themselves,
so that nothing is gained; and where reading fewer columns changes which rows Spark considers malformed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from penstock.model import Ref, Stream
from penstock.planner.network import Network
from penstock.spark.ingest import read_together
from penstock.spark.selected import kind_of, selection_of
from penstock.spark.sources import leaves_of, listed
from penstock.step.layout import Layout, lay_out
from penstock.step.mapper import brought
from penstock.step.pieces import is_scannable

_CORRUPT = "columnNameOfCorruptRecord"


def lay_out_needed(network: Network, frames: Mapping[str, DataFrame]) -> Layout:
    """The layout of the columns that Spark reads from now on."""
    streams = [stream for name, stream in network.streams.items() if name in frames]
    whole = lay_out(streams)
    pruned: dict[str, set[str]] = {}
    for names in read_together(frames, whole):
        dropped = [n for n in names if network.streams[n].late == network.streams[n].bad == "drop"]
        if dropped and not _reads_files(network, names, frames[names[0]]) and _is_prunable(frames[names[0]]):
            pruned |= {name: needed(network, network.streams[name]) for name in dropped}
    return lay_out(streams, pruned)


def missing(network: Network, layout: Layout) -> dict[str, list[str]]:
    """By stream the columns that queries need, and that Spark does not read under this layout."""
    found = {
        name: sorted(needed(network, network.streams[name]) - layout.slots[name].keys())
        for name in layout.order
        if name in network.streams
    }
    return {name: columns for name, columns in found.items() if columns}


def needed(network: Network, stream: Stream) -> set[str]:
    """The declared columns of a stream that mappers or Spark's expressions need; time and sequence are always read."""
    computed = [d.parts for d in network.derived if d.stream == stream.name and d.term is None]
    hashed = [part for table in network.tables_of(stream.name) if table.hashed is None for part in table.key]
    columns = brought(network, stream) | {r.column for p in (*computed, *hashed) for r in p if isinstance(r, Ref)}
    return columns & {column.name for column in stream.columns}


def _reads_files(network: Network, names: list[str], frame: DataFrame) -> bool:
    """Whether mappers read the files of these streams themselves."""
    return is_scannable(network, names) and selection_of(frame) is not None


def _is_prunable(frame: DataFrame) -> bool:
    """Whether Spark returns the same rows, with the same values, whatever columns it reads."""
    session = frame.sparkSession
    java: Any = session.sparkContext._jvm.scala.jdk.javaapi.CollectionConverters  # type: ignore[union-attr]  # noqa: SLF001
    for leaf in leaves_of(frame):
        if kind_of(leaf) != "StreamingRelation":
            continue
        options = {str(k).lower(): str(v) for k, v in java.asJava(leaf.dataSource().options()).items()}
        corrupt = options.get(_CORRUPT.lower(), session.conf.get(f"spark.sql.{_CORRUPT}", ""))
        columns = (column.name() for column in listed(leaf.output()))
        if options.get("mode", "PERMISSIVE").upper() != "PERMISSIVE" or corrupt in columns:
            return False
    return True
