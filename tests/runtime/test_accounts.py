import pytest
from pyspark.errors import PySparkException

from penstock.errors import StepError
from penstock.runtime.steps.accounts import failing_as_step


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("Job aborted\n  at x.y(Z.java:1)\njava.io.IOException: No space left: x\n", "java.io.IOException: No space left: x"),
        ("Something else\nand its stack", "Something else"),
        ("", "PySparkException"),
    ],
)  # fmt: skip
def test_a_job_that_fails_in_spark_fails_its_step_with_the_last_cause(said, cause):
    with (
        pytest.raises(StepError, match=r"^step 7 failed and nothing of it was committed: ") as caught,
        failing_as_step(7),
    ):
        raise PySparkException(said)
    assert str(caught.value).endswith(f": {cause}")


def test_other_errors_pass():
    with pytest.raises(KeyError), failing_as_step(7):
        raise KeyError("x")
