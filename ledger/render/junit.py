"""JUnit XML as continuous integration reads it: what its suites, cases and properties look like.

After the schema that Jenkins publishes (jenkins-junit.xsd), which is what other readers take too. Whatever
is put in is escaped: first what XML 1.0 cannot hold and what hides or acts, to visible escapes, then the
markup. Issued reports rest on this: what it gives keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, NamedTuple

from ledger.render.safe import terminal

HEAD: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'
FOOT: Final = "</testsuites>\n"
SUITE_FOOT: Final = " </testsuite>\n"


class Tally(NamedTuple):
    """How many cases a suite has, how many of them failed, and how many could not be put to the test."""

    tests: int
    failures: int
    errors: int

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(*map(sum, zip(self, other, strict=True)))


class Bad(NamedTuple):
    """Why a case did not pass. ``kind``: ``failure`` or ``error``; ``lines``: what else is known."""

    kind: str
    type: str
    message: str
    lines: tuple[str, ...] = ()


def suites(name: str, tally: Tally) -> str:
    """The opening of the whole."""
    return f"{HEAD}<testsuites{_attributes(('name', name), *_counts(tally))}>\n"


def suite(
    name: str, tally: Tally, properties: Iterable[tuple[str, str]], *, time: str | None = None, at: str | None = None
) -> str:
    """The opening of a suite, with its properties. ``time``: seconds; ``at``: when it began, RFC 3339."""
    opening = _attributes(("name", name), *_counts(tally), ("skipped", "0"), ("time", time), ("timestamp", at))
    lines = "".join(f"   <property{_attributes(('name', key), ('value', value))}/>\n" for key, value in properties)
    return f" <testsuite{opening}>\n" + (f"  <properties>\n{lines}  </properties>\n" if lines else "")


def case(classname: str, name: str, bad: Bad | None = None, *, time: str | None = None) -> str:
    """A case; it passed where ``bad`` is None. ``time``: seconds, None where not known."""
    opening = f"  <testcase{_attributes(('classname', classname), ('name', name), ('time', time))}"
    if bad is None:
        return f"{opening}/>\n"
    why = _attributes(("message", bad.message), ("type", bad.type))
    text = "\n".join(map(_text, bad.lines))
    return f"{opening}>\n   <{bad.kind}{why}>{text}</{bad.kind}>\n  </testcase>\n"


def _counts(tally: Tally) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(count)) for name, count in zip(Tally._fields, tally, strict=True))


def _attributes(*of: tuple[str, str | None]) -> str:
    return "".join(f' {name}="{_text(value)}"' for name, value in of if value is not None)


def _text(text: str) -> str:
    return escape(terminal(text))
