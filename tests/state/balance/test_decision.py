"""Parameters of policies."""

import pytest

from penstock.state.balance.decision import Parameters


@pytest.mark.parametrize("name", ["theta_r", "theta_s", "spill"])
@pytest.mark.parametrize("value", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_is_more_than_0_and_at_most_1(name, value):
    with pytest.raises(ValueError, match=name):
        Parameters(**{name: value})
    assert getattr(Parameters(**{name: 1.0}), name) == 1.0


@pytest.mark.parametrize("name", ["tau_m", "least", "lambda_r", "forced", "memory"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_an_amount_is_more_than_0(name, value):
    with pytest.raises(ValueError, match=name):
        Parameters(**{name: value})


def test_the_defaults_are_those_of_the_literature():
    known = Parameters()
    assert (known.theta_r, known.tau_m, known.lambda_r, known.spill) == (0.8, 45.0, 2.0, 0.3)
