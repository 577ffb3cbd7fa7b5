"""The time of a request, by regression on what is shipped (Liu 2005, 11.3.1), without knowledge of the source.

The candidate terms are those of the model; stepwise selection keeps those that the samples support.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt

import numpy as np
import numpy.typing as npt

_TERM: dict[str, Callable[[float, float], float]] = {
    "C*A": lambda c, a: c * a,
    "C": lambda c, _: c,
    "A": lambda _, a: a,
    "sqrt(C)": lambda c, _: sqrt(c),
    "sqrt(A)": lambda _, a: sqrt(a),
    "sqrt(C*A)": lambda c, a: sqrt(c * a),
}
TERMS = tuple(_TERM)
FEWEST = 4  # samples; with fewer only a mean is computed

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tau:
    """Time of a request as a function of C rows with A attributes; terms that were not selected have no coefficient.

    Above `until` rows, the largest measurement, time grows by `beyond` per row.
    """

    constant: float
    coefficients: tuple[tuple[str, float], ...] = ()
    least: float = 0.0  # lower bound of predictions
    until: float = inf
    beyond: float = 0.0

    def __call__(self, rows: float, attributes: float) -> float:
        within, seconds = min(rows, self.until), self.constant
        for name, b in self.coefficients:  # a plain loop: searches call this tens of thousands of times
            seconds += b * _TERM[name](within, attributes)
        return max(self.least, seconds) + self.beyond * max(0.0, rows - self.until)

    def __str__(self) -> str:
        return " + ".join([f"{self.constant:.6g}", *(f"{b:.6g}*{name}" for name, b in self.coefficients)])


def fit(samples: Sequence[tuple[float, float, float]], *, rising: bool = False) -> Tau:
    """The model for samples of (C, A, time).

    Terms are dropped and added one at a time as long as that lowers Schwarz's criterion, which weighs the remaining
    error against the number of terms. Predictions are never below half the shortest measured time. If `rising`, no term
    may shorten a request, which noisy samples could suggest.
    """
    if not samples:
        raise ValueError("a cost model needs at least one measured request")
    times = np.array([t for _, _, t in samples], np.float64)
    least = max(0.0, float(times.min()) / 2)
    columns = {name: np.array([_TERM[name](c, a) for c, a, _ in samples]) for name in TERMS}
    varying = [name for name, column in columns.items() if np.ptp(column) > 1e-12 * (1 + np.abs(column).max())]
    most = min(len({(c, a) for c, a, _ in samples}), len(samples) - 1)
    if len(samples) < FEWEST or not varying:
        return Tau(float(times.mean()), (), least)
    chosen = tuple(varying) if most > len(varying) and not rising else ()
    best = _criterion(columns, chosen, times, rising)
    while True:
        moves = [tuple(n for n in varying if (n in chosen) != (n == moved)) for moved in varying]
        scores = [(_criterion(columns, m, times, rising), m) for m in moves if len(m) < most]
        score, move = min(scores, default=(best, chosen))
        if score >= best:
            break
        best, chosen = score, move
    solution = _solve(columns, chosen, times)[0]
    return Tau(float(solution[0]), tuple(zip(chosen, map(float, solution[1:]), strict=True)), least)


def _solve(columns: dict[str, Floats], chosen: tuple[str, ...], times: Floats) -> tuple[Floats, float]:
    """(coefficients, the constant first; squared error). Columns are scaled, since C*A and sqrt(A) differ by far."""
    scales = np.array([1.0, *(np.abs(columns[name]).max() for name in chosen)])
    matrix = np.stack([np.ones(len(times)), *(columns[name] for name in chosen)], axis=1) / scales
    solution = np.linalg.lstsq(matrix, times, rcond=1e-10)[0]
    return solution / scales, float(((matrix @ solution - times) ** 2).sum())


def _criterion(columns: dict[str, Floats], chosen: tuple[str, ...], times: Floats, rising: bool) -> float:
    solution, error = _solve(columns, chosen, times)
    if rising and (solution < 0).any():
        return inf
    floor = 1e-18 * float((times**2).sum()) + 1e-300  # an exact fit must not have an infinite score
    count = len(times)
    return count * log((error + floor) / count) + (len(chosen) + 1) * log(count)
