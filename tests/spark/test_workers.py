"""Workers that cannot do what a step needs are refused when the engine is made."""

import sys
from pathlib import Path

import pytest

from penstock import Engine
from penstock.errors import SessionError
from penstock.spark import workers
from penstock.spark.workers import is_this_python

pytestmark = pytest.mark.spark


def python(folder, script):
    """A program that stands where Python should."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def shadowed(folder, text):
    """This Python, with another penstock before the one that is installed."""
    (folder / "penstock").mkdir()
    (folder / "penstock" / "__init__.py").write_text(text)
    return python(folder, f'PYTHONPATH="{folder}:$PYTHONPATH" exec {sys.executable} "$@"')


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda f: shadowed(f, "raise ImportError('there is none')"),
         r"without a penstock that can be imported \(there is none\)\), and this program"),
        (lambda f: shadowed(f, "__version__ = '0.0.1'\n__path__ += [p + '/penstock' for p in __import__('sys').path]"),
         r"Python 3\.\d+, penstock 0\.0\.1\), and this program"),
        (lambda f: python(f, "exit 3"), "cannot be used: Spark cannot start its Python workers"),
        (lambda f: str(f / "nowhere"), "cannot be used: Spark cannot start its Python workers"),
    ],
    ids=["none", "other", "ends", "missing"],
)  # fmt: skip
def test_workers_with_another_python_are_refused_with_the_remedy(spark, tmp_path, monkeypatch, make, said):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", make(tmp_path))
    with pytest.raises(SessionError, match=said) as caught:
        Engine(spark, tmp_path / "state")
    assert "PYSPARK_PYTHON" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_workers_that_are_fit_are_asked_once(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python(tmp_path, f'exec {sys.executable} "$@"'))
    Engine(spark, tmp_path / "state")
    monkeypatch.setattr(workers, "last_cause", None)
    monkeypatch.setattr(spark.sparkContext, "parallelize", None)
    Engine(spark, tmp_path / "state")


def test_this_python_is_known_without_asking(spark, tmp_path, monkeypatch):
    assert is_this_python(sys.executable)
    other = tmp_path / Path(sys.executable).name
    other.symlink_to(sys.executable)  # as in another virtual environment
    assert not is_this_python(str(other))
    assert not is_this_python("no-such-python")
    monkeypatch.setattr(spark.sparkContext, "parallelize", None)
    Engine(spark, tmp_path / "state")
