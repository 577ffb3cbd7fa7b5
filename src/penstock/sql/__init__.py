"""SQL text to the model: scripts to statements, SELECTs to queries, with errors at their line and column."""

from penstock.sql.alter_stream import AdvanceStream, AlterStream, altered
from penstock.sql.named import Results, results_of
from penstock.sql.places import named_in_from, placed_bounds
from penstock.sql.position import Position
from penstock.sql.select import emit_length, parse_query
from penstock.sql.statements import (
    AlterQuery,
    CreateQuery,
    CreateStream,
    DropQuery,
    DropStream,
    Explain,
    Refused,
    ResumeQuery,
    ShowQueries,
    ShowStreams,
    Statement,
    parse_script,
    read_script,
)
from penstock.sql.view import check_sources, parse_view
from penstock.sql.view_statements import (
    CreateSource,
    CreateView,
    DropSource,
    DropView,
    ExplainView,
    RefreshView,
    ShowSources,
    ShowViews,
)

__all__ = [
    "AdvanceStream", "AlterQuery", "AlterStream", "CreateQuery", "CreateSource", "CreateStream", "CreateView",
    "DropQuery", "DropSource", "DropStream", "DropView", "Explain", "ExplainView", "Position", "RefreshView", "Refused",
    "Results", "ResumeQuery", "ShowQueries", "ShowSources", "ShowStreams", "ShowViews", "Statement", "altered",
    "check_sources", "emit_length", "named_in_from", "parse_query", "parse_script", "parse_view", "placed_bounds",
    "read_script",
    "results_of",
]  # fmt: skip
