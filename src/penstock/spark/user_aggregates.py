"""Users' own aggregates, serialized for the workers of the run: never through a file."""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle

from penstock.model import UserAggregate


class Travelling:
    """A user's aggregate that arrives as it was, also if its class was made in a notebook or a script."""

    def __init__(self, function: UserAggregate) -> None:
        self.function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["function"], name)

    def __reduce__(self) -> tuple[Any, ...]:
        return cloudpickle.loads, (cloudpickle.dumps(self.function),)  # type: ignore[no-untyped-call]
