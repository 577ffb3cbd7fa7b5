"""Streams, queries, views and expressions as frozen data, with no behaviour beyond their own meaning."""

from penstock.model.expression import (
    And,
    Arithmetic,
    Compare,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Ref,
    Term,
)
from penstock.model.query import Band, Item, Query, Role, Rows, Sink, Tumbling, Window
from penstock.model.stream import Column, Reader, Stream
from penstock.model.view import Edge, Node, Source, View, ViewAggregate

__all__ = [
    "And", "Arithmetic", "Band", "Column", "Compare", "Edge", "Expression", "In", "IsNull", "Item", "Literal", "Node",
    "Not", "Or", "Query", "Reader", "Ref", "Role", "Rows", "Sink", "Source", "Stream", "Term", "Tumbling", "View",
    "ViewAggregate", "Window",
]  # fmt: skip
