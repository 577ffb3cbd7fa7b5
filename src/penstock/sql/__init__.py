"""SQL text to the model: scripts to statements, SELECTs to queries, with errors at their line and column."""

from penstock.sql.position import Position
from penstock.sql.select import parse_query
from penstock.sql.statements import (
    AlterQuery,
    CreateQuery,
    CreateStream,
    DropQuery,
    DropStream,
    Explain,
    ShowQueries,
    ShowStreams,
    Statement,
    parse_script,
)

__all__ = [
    "AlterQuery", "CreateQuery", "CreateStream", "DropQuery", "DropStream", "Explain", "Position", "ShowQueries", "ShowStreams",
    "Statement", "parse_query", "parse_script",
]  # fmt: skip
