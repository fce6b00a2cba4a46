"""An estimate behaves as the number it is: differences, conversions, what is shown."""

import math

import numpy as np
import pytest
from xarray import Dataset

from pymc_hais.estimators import Finding, LogBayesFactor, LogZEstimate, estimate_from_weights, with_shortfall

WARNING = Finding("not_finite", "warning", "seen 3 < 4 times.", "Look.")
ERROR = Finding("weight_degeneracy", "error", "k = 0.9.", "Raise.")
FIRST = LogZEstimate(-1.0, 0.3, -1.6, -0.3, findings=(WARNING,))
SECOND = LogZEstimate(-3.0, 0.1, -3.2, -2.2, shortfall=0.3, findings=(ERROR,))


def test_an_estimate_shows_its_findings_and_is_trusted_without_errors():
    assert FIRST.is_trustworthy
    estimate = LogZEstimate(-1.0, 0.1, -1.2, -0.8, findings=(WARNING, ERROR))
    assert not estimate.is_trustworthy
    assert repr(estimate).splitlines() == [
        "log Z = -1.000 ± 0.100 (95% interval -1.200 to -0.800)",
        "  warning: seen 3 < 4 times. Look.",
        "  error: k = 0.9. Raise.",
    ]


def test_a_difference_is_a_log_bayes_factor_with_its_error():
    factor = FIRST - SECOND
    assert isinstance(factor, LogBayesFactor)
    assert factor.value == 2.0
    assert factor.se == 0.5  # of 0.3 and 0.1 + 0.3
    # The lower end is the first one's lower end against the second one's upper end.
    assert factor.lower == pytest.approx(2.0 - math.hypot(0.6, 0.8))
    assert factor.upper == pytest.approx(2.0 + math.hypot(0.7, 0.2))
    assert factor.findings == (WARNING, ERROR)
    assert not factor.is_trustworthy
    assert repr(factor).startswith("log Bayes factor = 2.000 ± 0.500 (95% interval 1.000 to ")


def test_the_other_way_round_everything_changes_sign():
    there, back = FIRST - SECOND, SECOND - FIRST
    assert -there == LogBayesFactor(back.value, back.se, back.lower, back.upper, there.findings)


@pytest.mark.parametrize("exact", [-3, -3.0, np.float64(-3.0), np.float32(-3.0), np.int64(-3)])
def test_an_exact_value_on_either_side(exact):
    factor, back = FIRST - exact, exact - FIRST
    assert (factor.value, factor.se) == (2.0, FIRST.se)
    assert (factor.lower, factor.upper) == pytest.approx((1.4, 2.7))
    assert (back.value, back.se) == (-2.0, FIRST.se)
    assert (back.lower, back.upper) == pytest.approx((-2.7, -1.4))


def test_what_is_no_number_is_refused():
    for other in ("-3.0", None, FIRST - SECOND):
        with pytest.raises(TypeError):
            FIRST - other
        with pytest.raises(TypeError):
            other - FIRST


def test_a_result_is_not_subtracted_draw_by_draw():
    with pytest.raises(TypeError, match=r"two estimates of log Z; got Dataset. Pass pymc_hais.log_marginal_likelihood"):
        LogZEstimate(0.0, 0.1, -0.2, 0.2) - Dataset({"mu": 1.0})


def test_an_infinite_error_stays_infinite():
    bound = LogZEstimate(-1.0, 0.1, -1.2, np.inf, shortfall=np.inf)
    assert (bound - SECOND).se == np.inf
    assert (bound - SECOND).upper == np.inf
    assert np.isfinite((bound - SECOND).lower)


def test_conversions():
    assert float(SECOND) == -3.0
    assert f"{SECOND:.2f}" == "-3.00 ± 0.40"
    assert f"{SECOND:.1f}" == "-3.0 ± 0.4"
    assert f"{FIRST - SECOND:+.1f}" == "+2.0 ± 0.5"
    assert f"{SECOND}" == repr(SECOND)
    assert math.exp(FIRST - SECOND) == math.exp(2.0)


def test_a_notebook_shows_the_same_with_a_list_of_findings():
    html = (FIRST - SECOND)._repr_html_()
    assert "log Bayes factor = 2.000 ± 0.500" in html
    assert "<li><b>warning</b>: seen 3 &lt; 4 times. Look.</li><li><b>error</b>: k = 0.9. Raise.</li>" in html
    assert "<ul>" not in LogZEstimate(-1.0, 0.1, -1.2, -0.8)._repr_html_()


def test_a_notebook_shows_names_of_arguments_as_code():
    finding = Finding("weight_degeneracy", "error", "One ancestor.", "Pass more `draws` or `a<b`.")
    html = LogZEstimate(-1.0, 0.1, -1.2, -0.8, findings=(finding,))._repr_html_()
    assert "Pass more <code>draws</code> or <code>a&lt;b</code>.</li>" in html


def test_an_estimate_of_unknown_error_has_no_lower_end_that_its_own_spread_gives():
    """One weight of 60 with probability 1/60 is unbiased for 1, and 4.1 nats above it: rarer than Markov's 2.5%."""
    estimate = estimate_from_weights(np.zeros((4, 100)), np.zeros((4, 100), int), "annealed")
    unknown = with_shortfall(estimate, np.inf)
    assert unknown.lower == pytest.approx(estimate.value - np.log(40.0))
    assert unknown.upper == np.inf
    assert with_shortfall(estimate, 0.1).lower == estimate.lower


def test_formats_pad_value_and_error_as_one():
    assert f"{SECOND:>14.2f}" == f"{SECOND:14.2f}" == f"{SECOND:014.2f}" == "  -3.00 ± 0.40"
    assert f"{SECOND:*^+15.2f}" == "*-3.00 ± 0.40**"
    assert f"{SECOND:<16}" == "-3.000 ± 0.400  "
    factor = np.exp(FIRST - SECOND)
    assert f"{factor:>20.1f}" == f"{factor:.1f}".rjust(20)


def test_base_10():
    both = SECOND.log10, (FIRST - SECOND).log10
    assert [one.value * math.log(10.0) for one in both] == pytest.approx([-3.0, 2.0])
    assert [one.se * math.log(10.0) for one in both] == pytest.approx([0.4, 0.5])
    assert [str(one).partition(" = ")[0] for one in both] == ["log10 Z", "log10 Bayes factor"]
    assert not both[0].is_trustworthy


def test_exp_rounding_and_order():
    z = np.exp(SECOND)
    assert (z.value, z.lower, z.upper) == pytest.approx(np.exp([-3.0, -3.2, -2.2]))
    assert str(z).startswith("Z = 0.0498 (95% interval")
    factor = FIRST - SECOND
    assert [round(one, 1) for one in (SECOND, factor, np.exp(factor))] == [-3.0, 2.0, 7.4]
    assert SECOND < FIRST
    assert max([SECOND, FIRST]) is FIRST
    assert FIRST >= -1.0 > np.float64(-2.0) > SECOND
    assert factor > 1.9
    assert np.exp(factor) <= 7.39
    for other in (factor, "-3"):
        with pytest.raises(TypeError):
            assert other > SECOND
