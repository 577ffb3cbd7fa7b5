"""The executable specification: slow, obvious, one tuple at a time. Every plan, kernel and step must give its bag.

It does not know slices, buckets, bits or the inner structure of steps, and imports only the model (decision 0029).
"""

from penstock.reference.aggregate import Answer, aggregate_results, answers
from penstock.reference.evaluate import Raised, Unspecified, compare, evaluate, holds
from penstock.reference.join import bounds, combinations, project, result_time, results, serves
from penstock.reference.order import Row
from penstock.reference.progress import Accepted, admit, group_progress, output_progress, reachable

__all__ = [
    "Accepted", "Answer", "Raised", "Row", "Unspecified", "admit", "aggregate_results", "answers", "bounds",
    "combinations", "compare", "evaluate", "group_progress", "holds", "output_progress", "project", "reachable",
    "result_time", "results", "serves",
]  # fmt: skip
