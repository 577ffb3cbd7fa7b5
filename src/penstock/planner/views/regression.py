"""How long a request takes, by regression on what is shipped (Liu 2005, 11.3.1): nothing is known of the source itself.

The candidate terms are those of the model; stepwise selection keeps the ones that the samples speak for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
import numpy.typing as npt

TERMS = ("C*A", "C", "A", "sqrt(C)", "sqrt(A)", "sqrt(C*A)")
FEWEST = 4  # samples, below which only a mean can be told

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tau:
    """Time of a request as a function of C rows with A attributes; terms that were not selected have no coefficient."""

    constant: float
    coefficients: tuple[tuple[str, float], ...] = ()
    least: float = 0.0  # no prediction is below it

    def __call__(self, rows: float, attributes: float) -> float:
        terms = _terms(rows, attributes)
        return max(self.least, self.constant + sum(b * terms[name] for name, b in self.coefficients))

    def __str__(self) -> str:
        return " + ".join([f"{self.constant:.6g}", *(f"{b:.6g}*{name}" for name, b in self.coefficients)])


def fit(samples: Sequence[tuple[float, float, float]]) -> Tau:
    """The model for samples of (C, A, time).

    Terms are dropped and taken in one at a time as long as that lowers Schwarz's criterion, which weighs the error
    left against the number of terms. Predictions are never below half the shortest time that was seen.
    """
    if not samples:
        raise ValueError("a cost model needs at least one measured request")
    times = np.array([t for _, _, t in samples], np.float64)
    least = max(0.0, float(times.min()) / 2)
    columns = {name: np.array([_terms(c, a)[name] for c, a, _ in samples]) for name in TERMS}
    varying = [name for name, column in columns.items() if np.ptp(column) > 1e-12 * (1 + np.abs(column).max())]
    distinct = len({(c, a) for c, a, _ in samples})
    if len(samples) < FEWEST or not varying:
        return Tau(float(times.mean()), (), least)
    chosen = tuple(varying) if min(distinct, len(samples) - 1) > len(varying) else ()
    best = _criterion(columns, chosen, times)
    while True:
        moves = [tuple(n for n in varying if (n in chosen) != (n == moved)) for moved in varying]
        moves = [m for m in moves if len(m) < min(distinct, len(samples) - 1)]
        score, move = min(((_criterion(columns, m, times), m) for m in moves), default=(best, chosen))
        if score >= best:
            break
        best, chosen = score, move
    solution = _solve(columns, chosen, times)[0]
    return Tau(float(solution[0]), tuple(zip(chosen, map(float, solution[1:]), strict=True)), least)


def _terms(rows: float, attributes: float) -> dict[str, float]:
    both = rows * attributes
    return dict(zip(TERMS, (both, rows, attributes, sqrt(rows), sqrt(attributes), sqrt(both)), strict=True))


def _solve(columns: dict[str, Floats], chosen: tuple[str, ...], times: Floats) -> tuple[Floats, float]:
    """(coefficients, the constant first; squared error left). Columns are scaled, for C*A and sqrt(A) differ by far."""
    scales = np.array([1.0, *(np.abs(columns[name]).max() for name in chosen)])
    matrix = np.stack([np.ones(len(times)), *(columns[name] for name in chosen)], axis=1) / scales
    solution = np.linalg.lstsq(matrix, times, rcond=1e-10)[0]
    return solution / scales, float(((matrix @ solution - times) ** 2).sum())


def _criterion(columns: dict[str, Floats], chosen: tuple[str, ...], times: Floats) -> float:
    error = _solve(columns, chosen, times)[1]
    floor = 1e-18 * float((times**2).sum()) + 1e-300  # an exact fit must not have an infinite score
    count = len(times)
    return count * log((error + floor) / count) + (len(chosen) + 1) * log(count)
