"""``--issue``: recording in the ledger that these bytes of a report were given out."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from commands._options import option
from commands._output import say
from ledger.render.issue import issue, rendering
from ledger.store import Store

issue_option = option(
    "--issue",
    "to_issue",
    is_flag=True,
    help="Record in the ledger that these bytes were given out, so that `report-check` knows them. Once is enough.",
)


def issue_bytes(
    store: Store, run_id: str, kind: str, form: str, made: Mapping[str, Any], data: bytes, actor: str
) -> None:
    """Issue ``data``, the rendering ``form`` of ``made``, a report or grades as ``kind`` says; tell where it stands."""
    digest, position = sha256(data).hexdigest(), made["as_of"]["position"]
    of = rendering(kind, form, projection="{name}/{version}".format(**made["projection"]))
    found = issue(store, run_id, of, as_of_position=position, sha256=digest, actor=actor)
    say(f"{'Issued' if found.new else 'Was issued before,'} at position {found.position}: SHA-256 {digest}")
