"""What all tests share: one Spark session for each pytest worker, and how Hypothesis runs."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.effort import ALL, MUTATED, examples

settings.register_profile(
    "penstock",
    deadline=None,
    max_examples=examples(100),
    derandomize=not ALL,
    phases=[Phase.explicit, Phase.generate] if MUTATED else list(Phase),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("penstock")

# Programs that tests start have a JVM each, which lives too short for thorough compilation to pay.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


def pytest_collection_modifyitems(items):
    """Files that start Spark come first: they take longest, and the short ones then balance the workers at the end."""
    first = {item.path for item in items if item.get_closest_marker("spark")}
    items.sort(key=lambda item: item.path not in first)


@pytest.fixture(scope="session")
def spark():
    from tests.spark.replay import quick_session

    session = quick_session()
    yield session
    session.stop()
