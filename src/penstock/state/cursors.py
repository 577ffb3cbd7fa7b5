"""How far what goes out of the engine has come: results to sinks, and open windows that are shown early."""

from __future__ import annotations

import msgspec

from penstock.model.time import NEVER


class SinkCursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sink has the results of all steps up to `step`, the last one with rows for it.

    The sink of an ordered query has those with times below `released` instead.
    """

    step: int = -1
    released: int | None = None


class Shown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The step that last showed open windows of a query, and its clock in microseconds."""

    step: int = -1
    at: int = NEVER
