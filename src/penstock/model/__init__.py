"""Streams, queries, views and expressions as frozen data, with no behaviour beyond their own meaning."""

from penstock.model.aggregate import Aggregate, Aggregation, Emit, SortKey, Top, UserAggregate
from penstock.model.expression import (
    And,
    Arithmetic,
    Call,
    Choice,
    Compare,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Ref,
    Term,
    Typed,
)
from penstock.model.item import Item
from penstock.model.punctuation import Punctuation, Range
from penstock.model.query import Band, Branch, Query, Role, Rows, Sink, Tumbling, Window
from penstock.model.stream import Column, Reader, Stream
from penstock.model.view import Edge, Node, Source, View, ViewAggregate
from penstock.model.windows import AggregateWindow, Landmark, PerRow, Session, Sliding, SlidingRows

__all__ = [
    "Aggregate", "AggregateWindow", "Aggregation", "And", "Arithmetic", "Band", "Branch", "Call", "Choice", "Column",
    "Compare", "Edge", "Emit", "Expression", "In", "IsNull", "Item", "Landmark", "Literal", "Node", "Not", "Or",
    "PerRow", "Punctuation", "Query", "Range", "Reader", "Ref", "Role", "Rows", "Session", "Sink", "Sliding",
    "SlidingRows", "SortKey", "Source", "Stream", "Term", "Top", "Tumbling", "Typed", "UserAggregate", "View",
    "ViewAggregate", "Window",
]  # fmt: skip
