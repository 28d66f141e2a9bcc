"""How long something took, in the words of every page: rounded half up, without a float on the way.

Reports were issued in these words: they never change.
"""

from __future__ import annotations

from datetime import datetime, timedelta


def milliseconds(microseconds: int) -> str:
    """``20.5 ms``, ``1,200.0 ms``."""
    tenths = (microseconds + 50) // 100
    return f"{tenths // 10:,}.{tenths % 10} ms"


def between(first: str, last: str) -> str | None:
    """The time between two recorded times, as ``2 h 3 min 4.5 s``; None where one of them is no time."""
    try:
        microseconds = (datetime.fromisoformat(last) - datetime.fromisoformat(first)) // timedelta(microseconds=1)
    except (TypeError, ValueError):  # only where somebody altered the ledger
        return None
    minutes, tenths = divmod((max(microseconds, 0) + 50_000) // 100_000, 600)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{tenths // 10}.{tenths % 10} s"
    return " ".join([*([f"{hours:,} h"] if hours else []), *([f"{minutes} min"] if hours or minutes else []), seconds])
