"""A body is read up to a ceiling, whatever it says of itself."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.body_reader import BODY_CEILING, BodyReader


def read(data: bytes, encoding: str | None = None, declared: int | None = None, step: int = 16384) -> BodyReader:
    reader = BodyReader(encoding, declared)
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
        if reader.too_large:
            return reader
    reader.end()
    return reader


@given(st.binary(max_size=2000), st.integers(1, 300), st.sampled_from([None, "gzip", "deflate", "x-gzip", "GZIP"]))
def test_a_body_comes_out_as_it_was_however_it_was_cut_or_compressed(
    data: bytes, step: int, encoding: str | None
) -> None:
    sent = data if encoding is None else zlib.compress(data) if encoding == "deflate" else gzip.compress(data)
    reader = read(sent, encoding, step=step)
    assert (reader.body, reader.body_bytes, reader.too_large) == (data, len(data), False)


@pytest.mark.parametrize(("extra", "too_large"), [(0, False), (1, True)])
def test_the_ceiling_is_one_mebibyte_and_not_a_byte_less(extra: int, too_large: bool) -> None:
    assert read(b"x" * (BODY_CEILING + extra)).too_large is too_large


def test_a_declared_length_beyond_the_ceiling_is_told() -> None:
    reader = read(b"x" * (BODY_CEILING + 1), declared=20_000_000)
    assert reader.body_bytes == 20_000_000


def test_a_compressed_bomb_costs_no_more_than_the_ceiling() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000, 1)
    reader = read(bomb, "gzip")
    assert reader.too_large
    assert len(reader.body) == BODY_CEILING + 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"a":1}', id="not compressed"),
        pytest.param(gzip.compress(b'{"a":1}', mtime=0)[:-4], id="cut"),
        pytest.param(gzip.compress(b"{}", mtime=0) + b"junk", id="followed by junk"),
        pytest.param(b"\x1f\x8b", id="magic alone"),
    ],
)
def test_what_cannot_be_unfolded_is_kept_as_it_came(data: bytes) -> None:
    assert read(data, "gzip").body == data


def test_an_unknown_coding_is_kept_as_it_came() -> None:
    assert read(b"\x0b\x02\x80{}\x03", "br").body == b"\x0b\x02\x80{}\x03"
