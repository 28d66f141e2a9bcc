"""What the text of an option may be."""

from __future__ import annotations

import click
import pytest

from commands._run_options import JsonObject
from commands._types import AsOf, DecimalNumber, Identifier, IdPair, LineRange, Moment


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (DecimalNumber(), "0.20", "0.20"),
        (DecimalNumber(), "1e-3", "0.001"),
        (DecimalNumber(at_least=0, at_most=1), "1", "1"),
        (LineRange(), "5", "1-5"),
        (LineRange(), "3-7", "3-7"),
        (Identifier(), "a.b:c@d-e_f", "a.b:c@d-e_f"),
        (IdPair(), "team=sre", ("team", "sre")),
        (JsonObject(), '{"top_k": 5}', {"top_k": 5}),
        (Moment(), "2026-11-30", "2026-11-30T00:00:00.000000Z"),
        (Moment(), "2026-11-30T21:42:00+01:00", "2026-11-30T20:42:00.000000Z"),
        (Moment(), "2026-11-30T20:42:00Z", "2026-11-30T20:42:00.000000Z"),
        (AsOf(), "17", 17),
        (AsOf(), "2026-11-30", "2026-11-30T00:00:00.000000Z"),
    ],
)
def test_a_good_text_is_read(kind: click.ParamType[object], text: str, value: object) -> None:
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (DecimalNumber(), "warm"),
        (DecimalNumber(), "nan"),
        (DecimalNumber(), "inf"),
        (DecimalNumber(), "1e999999999"),
        (DecimalNumber(), "1e-999999999"),
        (DecimalNumber(at_least=0), "-0.1"),
        (DecimalNumber(above=0), "0"),
        (DecimalNumber(at_most=1), "1.01"),
        (LineRange(), "0"),
        (LineRange(), "7-3"),
        (LineRange(), "1-"),
        (LineRange(), "5\n"),
        (Identifier(), "-x"),
        (Identifier(), "$ledger"),
        (Identifier(), "a\n"),
        (Identifier(), "x" * 129),
        (IdPair(), "team"),
        (IdPair(), "team="),
        (IdPair(), "a team=sre"),
        (JsonObject(), "[]"),
        (JsonObject(), '{"a": 1, "a": 2}'),
        (JsonObject(), '{"a": NaN}'),
        (JsonObject(), "{"),
        (Moment(), "yesterday"),
        (Moment(), "2026-11-30T20:42:00"),
        (AsOf(), "0"),
        (AsOf(), "-3"),
        (AsOf(), "1.5"),
    ],
)
def test_a_bad_text_is_refused(kind: click.ParamType[object], text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)
