"""SQL statements about sources and views, executed on a catalog."""

from __future__ import annotations

from typing import Any

from penstock.sql import (
    CreateSource,
    CreateView,
    DropSource,
    DropView,
    ExplainView,
    RefreshView,
    ShowSources,
    ShowViews,
)
from penstock.sql.view_statements import ViewStatement
from penstock.views.catalog import ViewCatalog

__all__ = ["ViewStatement", "execute_view_statement"]


def execute_view_statement(catalog: ViewCatalog, statement: ViewStatement, script: str) -> list[Any]:
    """The output of the statement, empty for most. A view is computed when created, and refreshed if EVERY is given."""
    match statement:
        case CreateSource(source):
            catalog.add_source(source)
        case CreateView(name, select, line, column, every, strategy):
            known = name in catalog.views
            view = catalog.add_view(select, name, strategy=strategy or "auto", script=script, line=line, column=column)
            if not known and not view.store.newest.number:
                view.refresh()
            if every is not None:
                view.start(every)
        case RefreshView(name, full):
            catalog.view(name).refresh(full=full)
        case DropView(name, if_exists):
            catalog.drop_view(name, missing=if_exists)
        case DropSource(name):
            catalog.drop_source(name)
        case ShowSources():
            return [[{"name": s.name, "using": s.system, "changes": s.changes} for s in catalog.sources.values()]]
        case ShowViews():
            return [[{k: v for k, v in view.status().items() if k in _SHOWN} for view in catalog.views.values()]]
        case ExplainView(name):
            return [catalog.view(name).explain()]
    return []


_SHOWN = ("name", "version", "age", "files", "bytes", "strategy", "every", "error")
