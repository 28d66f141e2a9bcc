"""Whether a table has the columns that the options name, known by its header alone and told once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from runner.prepare_fields import find
from runner.prepare_sources import Fault, PrepareError

_SHOWN: Final = 30
_LONGEST: Final = 60
_SEPARATORS: Final = {";": "semicolons", "\t": "tabs"}


def check_columns(header: Sequence[str], mapping: Mapping[str, str], labels: Iterable[str], file: str) -> None:
    """Raise ``PrepareError`` naming each column that is not there, and those that are.

    ``mapping``: field -> column. A row without its incident is none, so that a column for it must be there too.
    """
    cells = dict.fromkeys(header, "")
    wanted = dict.fromkeys((mapping.get("incident_id", "incident_id"), *mapping.values(), *labels))
    missing = [column for column in wanted if find(cells, column) is None]
    if not missing:
        return
    message = "no column is called that" if len(missing) == 1 else "no columns are called that"
    if missing[0] == "incident_id" and "incident_id" not in mapping:
        message += "; say which one is the incident's id: --map incident_id=COLUMN"
    raise PrepareError(Fault(f"{message}; {_there_are(header)}", file, "line 1", ", ".join(missing)))


def _there_are(header: Sequence[str]) -> str:
    """The columns by name: what stands in a file without a header may be long, and is cut."""
    named = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in header[:_SHOWN]]
    more = f" ... and {len(header) - _SHOWN} more" if len(header) > _SHOWN else ""
    if len(header) > 1:
        return f"the columns are {', '.join(named)}{more}"
    held = [what for character, what in _SEPARATORS.items() if character in header[0]]
    hint = f", and holds {' and '.join(held)}: cells must be separated by commas" if held else ""
    return f"the only column is {named[0]}{hint}"
