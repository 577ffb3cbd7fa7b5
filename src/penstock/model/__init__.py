"""Streams, queries and expressions as frozen data, with no behaviour beyond their own meaning."""

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
from penstock.model.punctuation import Punctuation, Range
from penstock.model.query import Band, Item, Query, Role, Rows, Sink, Tumbling, Window
from penstock.model.stream import Column, Reader, Stream

__all__ = [
    "And", "Arithmetic", "Band", "Column", "Compare", "Expression", "In", "IsNull", "Item", "Literal", "Not",
    "Or", "Punctuation", "Query", "Range", "Reader", "Ref", "Role", "Rows", "Sink", "Stream", "Term", "Tumbling", "Window",
]  # fmt: skip
