"""The Arrow schema of a source."""

from __future__ import annotations

import pyarrow as pa

from penstock.columns.types import KNOWN, source_type
from penstock.errors import RegistrationError
from penstock.model import Column


def schema_of(source: str, columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema of a source's columns; refuses unsupported types."""
    fields = []
    for column in columns:
        kind = source_type(column.type)
        if kind is None:
            msg = (
                f"source {source!r}: column {column.name!r} has type {column.type}, which views do not hold; "
                f"leave it out, or cast it to one of: {KNOWN}"
            )
            raise RegistrationError(msg)
        fields.append(pa.field(column.name, kind))
    return pa.schema(fields)
