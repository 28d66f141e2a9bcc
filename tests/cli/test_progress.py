"""Counts, rate and time left, in one line of a terminal."""

from __future__ import annotations

import io

from commands._progress import Moment, TerminalLine, describe
from runner.plan import ProgressEvent


def calls(done: int, total: int | None = 100) -> ProgressEvent:
    return ProgressEvent("calls", done, total, accepted=done - 1, fallbacks=1, in_flight=8)


def test_the_line_tells_counts_rate_and_time_left() -> None:
    line = describe(Moment(10.0, calls(10)), Moment(20.0, calls(30)))
    assert line == "30/100 requests, 29 accepted, 1 fallback, 8 in flight, 2.0/s, 35 s left"


def test_no_rate_is_made_up_from_too_little() -> None:
    assert "/s" not in describe(Moment(10.0, calls(10)), Moment(10.5, calls(12)))
    assert "/s" not in describe(Moment(10.0, calls(10)), Moment(20.0, calls(10)))


def test_what_is_not_known_is_not_a_number() -> None:
    line = describe(Moment(0.0, calls(1, None)), Moment(10.0, calls(11, None)))
    assert line.startswith("11/? requests")
    assert "left" not in line


def test_the_reading_of_the_file_counts_lines() -> None:
    assert describe(Moment(0.0, calls(0)), Moment(1.0, ProgressEvent("intake", 1280, None))) == "reading: 1,280 lines"


def test_one_record_that_was_read_is_told_as_one() -> None:
    for count, said in ((1, "reading: 1 record"), (1280, "reading: 1,280 records")):
        stream = Terminal()
        TerminalLine(stream).records(count)
        assert stream.getvalue().endswith(said)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_is_redrawn_five_times_a_second_at_most_and_taken_away_at_the_end() -> None:
    stream, now = Terminal(), [0.0]
    with TerminalLine(stream, lambda: now[0]) as line:
        for step in range(100):
            now[0] = step / 100
            line.run(calls(step + 1))
    assert 4 <= stream.getvalue().count("requests") <= 6
    assert stream.getvalue().endswith("\r\x1b[K")


def test_outside_a_terminal_nothing_is_drawn() -> None:
    stream = io.StringIO()
    with TerminalLine(stream) as line:
        line.run(calls(1))
        line.events(1, 2)
    with TerminalLine(None) as line:
        line.events(1, 2)
    assert stream.getvalue() == ""
