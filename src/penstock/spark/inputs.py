"""The inputs of declared streams: a DataFrame for each stream that this program declares."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from penstock.catalog.catalog import Catalog
from penstock.model import Stream


class Inputs:
    """The DataFrames of the streams of a catalog, changed together with it."""

    def __init__(self, spark: SparkSession, catalog: Catalog) -> None:
        self.spark, self.catalog = spark, catalog
        self.frames: dict[str, DataFrame] = {}

    def add(self, stream: Stream, frame: DataFrame, *, altered: bool = False) -> None:
        """Declare a stream that reads this DataFrame."""
        beside = [name for name, other in self.frames.items() if other is frame]
        self.catalog.add_stream(stream, beside, altered=altered)
        # Streams on one source share a DataFrame, which identifies them as read together.
        records = self.catalog.registry.streams
        source = records[stream.name].source_name
        together = [name for name in self.frames if records[name].source_name == source]
        self.frames[stream.name] = self.frames[together[0]] if together else frame

    def alter(self, stream: Stream, frame: DataFrame | None) -> None:
        """Change delay or path of a registered stream; its DataFrame reads the new path, if declared here."""
        self.catalog.alter_stream(stream)
        if frame is not None:
            self.frames[stream.name] = frame

    def drop(self, name: str) -> None:
        self.catalog.drop_stream(name)
        self.frames.pop(name, None)
