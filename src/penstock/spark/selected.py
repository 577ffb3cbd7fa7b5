"""Which sources are Parquet files whose columns and rows mappers can compute as Spark would, as terms.

Spark's own analysis defines a DataFrame. The text that it prints for an expression becomes a term only if Spark parses
the same expression from that text under the present settings: those of the DataFrame's creation count (decision 0010).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from penstock.errors import SqlError
from penstock.model import Column, Ref, Term
from penstock.planner.meaning import ANSI, ZONE, settled_term
from penstock.planner.remap import map_term
from penstock.spark.sources import listed
from penstock.spark.types import types_of
from penstock.sql.typed_terms import term_in_text
from penstock.step.selection import Selection

# Options of a file stream that only select its files.
_LISTING = frozenset({
    "path", "maxfilespertrigger", "maxbytespertrigger", "maxfileage", "maxcachedfiles", "latestfirst", "filenameonly",
    "cleansource", "sourcearchivedir", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter",
})  # fmt: skip
_LENIENT = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")


def selection_of(frame: DataFrame) -> Selection | None:
    """A stream as a selection of its Parquet files' rows; None if it is something else, or needs Spark."""
    plan, steps = frame._jdf.queryExecution().analyzed(), []  # noqa: SLF001
    while kind_of(plan) in ("Project", "Filter"):
        steps.append(plan)
        plan = plan.child()
    if kind_of(plan) != "StreamingRelation" or not _is_plain(frame, plan.dataSource()):
        return None
    columns = _columns(plan)
    if columns is None:
        return None
    items: dict[str, Term] = {column.name: Ref(0, column.name) for column in columns}
    filters: list[Term] = []
    for step in reversed(steps):
        if kind_of(step) == "Filter":
            term = _term(frame, step, step.condition(), items)
            if term is None:
                return None
            filters.append(term)
            continue
        terms = {item.name(): _term(frame, step, item, items) for item in listed(step.projectList())}
        if None in terms.values() or _columns(step) is None:
            return None
        items = {name: term for name, term in terms.items() if term is not None}
    return Selection(types_of(frame.sparkSession, columns), items, tuple(filters))


def _is_plain(frame: DataFrame, source: Any) -> bool:
    """Whether Spark reads such files row by row unchanged, and all of them."""
    options = frame.sparkSession.sparkContext._jvm.scala.jdk.javaapi.CollectionConverters.asJava(source.options())  # type: ignore[union-attr]  # noqa: SLF001
    lenient = any(frame.sparkSession.conf.get(name, "false") == "true" for name in _LENIENT)
    return (
        source.className() == "parquet"
        and source.partitionColumns().isEmpty()
        and {str(key).lower() for key in options} <= _LISTING
        and not lenient
    )


def _columns(plan: Any) -> tuple[Column, ...] | None:
    """The columns of a plan; None if names repeat, or a type does not say everything."""
    found = listed(plan.output())
    names = {column.name().lower() for column in found}
    if len(names) < len(found) or any(column.metadata().json() != "{}" for column in found):
        return None
    return tuple(Column(column.name(), column.dataType().catalogString()) for column in found)


def _term(frame: DataFrame, step: Any, expression: Any, items: Mapping[str, Term]) -> Term | None:
    """An expression over the columns of a plan's child, which are `items`, as a term over the columns of the files."""
    if kind_of(expression) == "Alias":
        expression = expression.child()
    if kind_of(expression) == "AttributeReference":
        return items.get(expression.name())
    below = _columns(step.child())
    text = expression.sql()
    if below is None or not _is_said_by(frame, step.child(), expression, text):
        return None
    try:
        found = term_in_text(text, below)
    except SqlError:
        return None
    if found is None or found.type != expression.dataType().catalogString():
        return None
    session = frame.sparkSession
    term = settled_term(found.term, {name: str(session.conf.get(name)) for name in (ZONE, ANSI)})
    return None if term is None else map_term(term, lambda ref: items[ref.column])


def _is_said_by(frame: DataFrame, below: Any, expression: Any, text: str) -> bool:
    """Whether Spark parses exactly that expression from a text, over the rows of a plan."""
    session = frame.sparkSession
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    try:
        rows = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, below), session)  # noqa: SLF001
        plan = rows.selectExpr(f"{text} AS value")._jdf.queryExecution().analyzed()  # noqa: SLF001
    except Exception as error:  # from PySpark or the JVM
        if isinstance(error, Py4JJavaError) or type(error).__module__.startswith("pyspark."):
            return False
        raise
    if kind_of(plan) != "Project":
        return False
    value = plan.projectList().apply(0)
    return bool(kind_of(value) == "Alias" and value.child().semanticEquals(expression))


def kind_of(node: Any) -> str:
    """The class of a node of Spark's plans."""
    return str(node.getClass().getSimpleName())
