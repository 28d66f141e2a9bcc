"""What chance alone would explain: an exact test, and intervals in closed form. Pure.

In integers and decimals, not floats: the same counts give the same digits on every machine, as the
bytes of a report must. Nothing is drawn at random, so there is no seed that could matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final, NamedTuple

# The 0.975 quantile of the normal distribution, as statistics.NormalDist().inv_cdf gives it.
Z_95: Final = Decimal("1.959963984540054")
CONFIDENCE: Final = "0.95"
DECIMALS: Final = 6
"""Digits after the point of what is given out."""

_EXACT: Final = Context(prec=40, rounding=ROUND_HALF_EVEN)
_SHORT: Final = Context(prec=DECIMALS, rounding=ROUND_HALF_EVEN)
_STEP: Final = Decimal(1).scaleb(-DECIMALS)


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` of ``of``, with its 95 % interval; the three rates are null where there is nothing to count."""

    count: int
    of: int
    rate: Decimal | None
    low: Decimal | None
    high: Decimal | None

    def shown(self) -> dict[str, Any]:
        """As JSON: counts as integers, rates as decimal strings with six digits after the point."""
        rates = {"rate": self.rate, "low": self.low, "high": self.high}
        return {"count": self.count, "of": self.of, **{name: decimal(value) for name, value in rates.items()}}


def decimal(value: Decimal | None) -> str | None:
    """A number with six digits after the point, as text; never a negative zero."""
    if value is None:
        return None
    rounded = value.quantize(_STEP, context=_EXACT)
    return format(rounded if rounded else abs(rounded), "f")


def wilson(count: int, of: int) -> Share:
    """The score interval of a proportion (E. B. Wilson, J. Am. Stat. Assoc. 22 (1927), p. 209), without
    correction for continuity: inside 0 and 1, and of a width above 0 also where all or none count.

    Raises ``ValueError`` unless 0 <= ``count`` <= ``of``.
    """
    if not 0 <= count <= of:
        raise ValueError(f"{count} of {of} is no share")
    if of == 0:
        return Share(0, 0, None, None, None)
    c = _EXACT
    n, x = Decimal(of), Decimal(count)
    z2 = c.multiply(Z_95, Z_95)
    spread = c.add(z2, c.divide(c.multiply(4 * x, n - x), n))
    half = c.multiply(Z_95, c.sqrt(spread))
    middle, scale = c.add(2 * x, z2), c.multiply(2, c.add(n, z2))
    low = Decimal(0) if count == 0 else c.divide(c.subtract(middle, half), scale)
    high = Decimal(1) if count == of else c.divide(c.add(middle, half), scale)
    return Share(count, of, c.divide(x, n), low, high)


def mcnemar_exact(first_only: int, second_only: int) -> Decimal:
    """The two-sided p-value of McNemar's exact test: of the pairs that disagree, is one kind the more frequent?

    Twice the smaller tail of a binomial with p = 1/2 over the pairs that disagree, at most 1 (Q. McNemar,
    Psychometrika 12 (1947); exact form as in A. Agresti, Categorical Data Analysis, section 10.1). 1 where
    none disagrees. Counted in whole numbers and divided once, to six significant digits.
    """
    pairs, fewer = first_only + second_only, min(first_only, second_only)
    if fewer < 0:
        raise ValueError("a count below 0")
    term = tail = 1
    for k in range(fewer):
        term = term * (pairs - k) // (k + 1)
        tail += term
    if 2 * tail >= 1 << pairs:
        return Decimal(1)
    return _SHORT.divide(_EXACT.create_decimal(2 * tail), _EXACT.create_decimal(1 << pairs))


class Difference(NamedTuple):
    """Second share minus first over the same pairs, with its 95 % interval; null where there is no pair."""

    value: Decimal | None
    low: Decimal | None
    high: Decimal | None


def paired_difference(both: int, first_only: int, second_only: int, neither: int) -> Difference:
    """The interval of a difference of two shares of the same pairs: second minus first.

    R. G. Newcombe, Statistics in Medicine 17 (1998), pp. 2635-2650, method 10: Wilson's limits of each
    share, joined with the correlation of the pairs.
    """
    n = both + first_only + second_only + neither
    if n == 0:
        return Difference(None, None, None)
    c = _EXACT
    first, second = wilson(both + first_only, n), wilson(both + second_only, n)
    phi = _phi(both, first_only, second_only, neither)
    value = c.divide(Decimal(second_only - first_only), Decimal(n))
    down = _joined(_gap(second.rate, second.low), _gap(first.high, first.rate), phi)
    up = _joined(_gap(second.high, second.rate), _gap(first.rate, first.low), phi)
    return Difference(value, c.subtract(value, down), c.add(value, up))


def _gap(upper: Decimal | None, lower: Decimal | None) -> Decimal:
    assert upper is not None
    assert lower is not None
    return _EXACT.subtract(upper, lower)


def _joined(one: Decimal, other: Decimal, phi: Decimal) -> Decimal:
    c = _EXACT
    squares = c.add(c.multiply(one, one), c.multiply(other, other))
    shared = c.multiply(c.multiply(2, phi), c.multiply(one, other))
    return c.sqrt(max(Decimal(0), c.subtract(squares, shared)))


def _phi(both: int, first_only: int, second_only: int, neither: int) -> Decimal:
    """The correlation, corrected for continuity where it is positive (Newcombe's phi-hat)."""
    n = both + first_only + second_only + neither
    margins = (both + first_only) * (second_only + neither) * (both + second_only) * (first_only + neither)
    if not margins:
        return Decimal(0)
    cross = both * neither - first_only * second_only
    if cross > 0:
        cross = 0 if 2 * cross <= n else 2 * cross - n  # twice max(cross - n/2, 0)
    else:
        cross *= 2
    return _EXACT.divide(Decimal(cross), _EXACT.multiply(2, _EXACT.sqrt(_EXACT.create_decimal(margins))))
