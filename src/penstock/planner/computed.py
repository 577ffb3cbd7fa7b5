"""The columns that are computed for each row of a stream before the exchange, collected while queries are compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from penstock.columns.terms.raising import is_decided_in_order
from penstock.model import And, Expression, Literal, Query, Ref, Stream, Term
from penstock.planner.index import INDEXED_TYPES, indexable
from penstock.planner.keys import INTEGRAL, bare_columns
from penstock.planner.remap import remap_expression
from penstock.planner.state_table import ComputedColumn
from penstock.planner.table_keys import TableKey


class ComputedColumns:
    """Each is computed once, whatever needs it: parts of keys, predicates, arguments of aggregates."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str | Ref, ...]], ComputedColumn] = {}

    @property
    def all(self) -> tuple[ComputedColumn, ...]:
        return tuple(self._known.values())

    def derive(self, stream: str, parts: tuple[str | Ref, ...], *, risky: bool, term: Term | None = None) -> str:
        """The name of a column that is computed for each row."""
        found = self._known.get((stream, parts))
        if found is None:
            # Stored runs contain computed columns, so their names follow from the text and mean the same everywhere.
            text = "".join(p if isinstance(p, str) else f"\0{p.column}\0" for p in parts)
            digest = hashlib.sha256(f"{stream}\0{text}".encode()).hexdigest()[:12]
            found = ComputedColumn(
                f"_d{digest}", stream, parts, risky, None if isinstance(term, Ref | Literal) else term
            )
            self._known[(stream, parts)] = found
        return found.name

    def predicates(self, query: Query, role: int, stream: Stream) -> tuple[list[tuple[str, Term]], tuple[str, ...]]:
        """Split a role's predicates into those the index decides and those Spark evaluates before the exchange.

        Predicates that may raise are evaluated as one, after all that cannot, so that a guard like `w <> 5 AND
        1/(w-5) > 0` still guards.
        """
        own = [remap_expression(p, {role: 0}) for p in query.predicates if p.roles in ((role,), ())]
        terms: list[tuple[str, Term]] = []
        truths: list[str] = []
        for predicate in own:
            if not predicate.total:
                continue
            column = indexable(predicate.term)
            declared = stream.column(column) if column else None
            if predicate.term is not None and declared is not None and declared.type in INDEXED_TYPES:
                terms.append((declared.name, predicate.term))
            else:
                truths.append(self.derive(stream.name, predicate.parts, risky=False, term=_truth([predicate])))
        if not all(p.total for p in own):
            parts: list[str | Ref] = []
            ordered = sorted(own, key=lambda p: not p.total)
            for predicate in ordered:
                parts += [" AND " if parts else "", "(", *predicate.parts, ")"]
            truths.append(self.derive(stream.name, tuple(parts), risky=True, term=_truth(ordered)))
        return terms, tuple(dict.fromkeys(truths))

    def hashed(
        self, stream: Stream, key: Sequence[tuple[str | Ref, ...]], types: Sequence[str], terms: Sequence[Term | None],
        total: Sequence[bool],
    ) -> tuple[str, ...] | None:  # fmt: skip
        """The columns, declared or computed by mappers, with the parts of a key; None if Spark must compute a part."""
        names = []
        for part, kind, term, safe in zip(key, types, terms, total, strict=True):
            bare = bare_columns([part], [kind], stream)
            if bare is None and term is None:
                return None
            names.append(bare[0] if bare is not None else self.derive(stream.name, part, risky=not safe, term=term))
        return tuple(names)

    def told_apart(self, key: TableKey, stream: Stream) -> tuple[str, ...]:
        """The columns that distinguish keys of the same hash; none if the hash is one-to-one."""
        exact = len(key.types) == 1 and key.types[0] in INTEGRAL
        return () if exact else self.verify(key, stream)

    def verify(self, key: TableKey, stream: Stream) -> tuple[str, ...]:
        """Columns with the key's values: the declared column itself if it is the key."""
        names = []
        for part, kind, total, term in zip(key.key, key.types, key.total, key.terms, strict=True):
            bare = part[0] if len(part) == 1 else None
            if isinstance(bare, Ref) and kind != "double" and bare.column != stream.event_time:
                names.append(bare.column)
            elif len(key.types) == 1 and kind in INTEGRAL:
                names.append("")
            else:
                names.append(self.derive(key.stream, part, risky=not total, term=term))
        return tuple(names)


def _truth(predicates: Sequence[Expression]) -> Term | None:
    """The conjunction of predicates; None if one of them needs Spark."""
    known = tuple(p.term for p in predicates if p.term is not None)
    return And(known) if len(known) == len(predicates) and is_decided_in_order(known) else None
