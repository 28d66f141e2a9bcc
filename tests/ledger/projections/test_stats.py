"""The test and the intervals: values that others published, and what must hold for all counts."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import comb
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.projections.stats import Z_95, decimal, mcnemar_exact, paired_difference, wilson

COUNTS = st.integers(min_value=0, max_value=400)


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        # R. G. Newcombe, Statistics in Medicine 17 (1998), pp. 857-872, table I, method 3.
        (81, 263, "0.2553", "0.3662"),
        (15, 148, "0.0624", "0.1605"),
        (0, 20, "0.0000", "0.1611"),
        (1, 29, "0.0061", "0.1718"),
    ],
)
def test_wilsons_interval_is_the_published_one(count: int, of: int, low: str, high: str) -> None:
    share = wilson(count, of)
    assert share.low is not None
    assert share.high is not None
    assert (f"{share.low:.4f}", f"{share.high:.4f}") == (low, high)


@pytest.mark.parametrize(
    ("first_only", "second_only", "p"),
    [
        # M. W. Fagerland, S. Lydersen, P. Laake, BMC Medical Research Methodology 13:91 (2013): the exact conditional
        # test on airway hyper-responsiveness before and after a transplantation, and on response to two treatments.
        (1, 7, "0.0703"),
        (6, 16, "0.0525"),
        # By hand: of ten that disagree, one against nine: 2 (1 + 10) / 2^10.
        (1, 9, "0.0215"),
        (0, 0, "1.0000"),
        (5, 5, "1.0000"),
    ],
)
def test_mcnemars_exact_test_gives_the_published_values(first_only: int, second_only: int, p: str) -> None:
    assert f"{mcnemar_exact(first_only, second_only):.4f}" == p
    assert mcnemar_exact(second_only, first_only) == mcnemar_exact(first_only, second_only)


@pytest.mark.parametrize(
    ("table", "value", "low", "high"),
    [
        # R. G. Newcombe, Statistics in Medicine 17 (1998), pp. 2635-2650, method 10 on 36, 12, 2, 0 of 50.
        ((36, 2, 12, 0), "0.2000", "0.0569", "0.3404"),
        # As above, Fagerland and others (Statistics in Medicine 33, 2014, pp. 2850-2875): 1, 1, 7, 12 of 21.
        ((1, 1, 7, 12), "0.2857", "0.0256", "0.5069"),
    ],
)
def test_the_interval_of_a_paired_difference_is_the_published_one(
    table: tuple[int, int, int, int], value: str, low: str, high: str
) -> None:
    assert tuple(f"{number:.4f}" for number in paired_difference(*table)) == (value, low, high)


def test_the_quantile_is_the_normal_distributions() -> None:
    assert float(Z_95) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-14)


@given(COUNTS, COUNTS)
def test_the_exact_test_is_twice_a_binomial_tail(first_only: int, second_only: int) -> None:
    pairs, fewer = first_only + second_only, min(first_only, second_only)
    tail = Fraction(sum(comb(pairs, k) for k in range(fewer + 1)), 2**pairs)
    exact = min(Fraction(1), 2 * tail)
    found = mcnemar_exact(first_only, second_only)
    assert abs(Fraction(found) - exact) <= exact * Fraction(1, 10**5)
    assert 0 < found <= 1


@given(COUNTS, COUNTS)
def test_wilsons_interval_holds_the_rate_and_mirrors(count: int, rest: int) -> None:
    of = count + rest
    share, mirrored = wilson(count, of), wilson(rest, of)
    if of == 0:
        assert (share.rate, share.low, share.high) == (None, None, None)
        return
    assert share.rate is not None
    assert share.low is not None
    assert share.high is not None
    assert 0 <= share.low <= share.rate <= share.high <= 1
    assert share.low < share.high
    assert decimal(share.low) == decimal(1 - mirrored.high)  # type: ignore[operator]


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_the_interval_of_a_difference_turns_round_with_the_sides(
    both: int, first_only: int, second_only: int, neither: int
) -> None:
    gap = paired_difference(both, first_only, second_only, neither)
    turned = paired_difference(both, second_only, first_only, neither)
    if gap.value is None or gap.low is None or gap.high is None:
        assert both + first_only + second_only + neither == 0
        return
    assert -1 <= gap.low <= gap.value <= gap.high <= 1
    assert (decimal(gap.value), decimal(gap.low)) == (decimal(-turned.value), decimal(-turned.high))  # type: ignore[operator]


def test_a_hundred_thousand_pairs_are_no_trouble_and_a_tiny_p_keeps_its_digits() -> None:
    assert mcnemar_exact(50_000, 50_000) == 1
    assert mcnemar_exact(0, 100) == Decimal("1.57772E-30")
    assert mcnemar_exact(10, 90_000) < Decimal("1E-1000")


@pytest.mark.parametrize(("count", "of"), [(-1, 3), (4, 3)])
def test_what_is_no_share_is_refused(count: int, of: int) -> None:
    with pytest.raises(ValueError, match="no share"):
        wilson(count, of)


def test_no_rate_is_written_as_a_negative_zero() -> None:
    assert decimal(Decimal("-0.0000001")) == "0.000000"
