"""What the last steps have shown of each bucket: decayed sums, since rates change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

DECAY = 0.8  # weight of a step relative to the next one


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bucket of keys, over all joins.

    `size` are bytes of new rows, `work` look-ups and compared pairs, `made` pairs that serve a query, `inter`
    composites that had to be looked up again, `output` results. `active` is the last step with new rows.
    """

    size: float = 0.0
    work: float = 0.0
    made: float = 0.0
    inter: float = 0.0
    output: float = 0.0
    active: int = -1


Loads = Sequence[Load]  # by bucket


def learn(known: Loads, step: int, seen: Loads, put_off: frozenset[int] = frozenset()) -> tuple[Load, ...]:
    """The loads after one more step, in which these buckets were `put_off`.

    What is put off has no work that could be seen: it keeps what it had.
    """
    return tuple(
        _sum(own, new, step, 1.0 if bucket in put_off else DECAY)
        for bucket, (own, new) in enumerate(zip(known or [Load()] * len(seen), seen, strict=True))
    )


def _sum(own: Load, new: Load, step: int, weight: float) -> Load:
    if weight == 1.0:
        return msgspec.structs.replace(own, active=step) if new.size else own
    return Load(
        weight * own.size + new.size, weight * own.work + new.work, weight * own.made + new.made,
        weight * own.inter + new.inter, weight * own.output + new.output, step if new.size else own.active,
    )  # fmt: skip


def ratio(output: float, cost: float) -> float:
    """Output by cost; a bucket that costs nothing is never worth putting off."""
    return output / cost if cost else float("inf")
