"""What recorded lines and replies say, read again for whoever is shown them. Pure; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.projections.conversations import Answer, AskedField
from runner.answer import AnswerError, read_answer
from runner.decide import ImpossibleHistory, Past, recorded_reply
from runner.requests import BadLine, parse_line
from runner.variants import BASELINE


class Reading:
    """A ``ledger.projections.conversations.Reader``."""

    def asked(self, accepted: Mapping[str, Any], line: bytes) -> Sequence[AskedField]:
        """The fields of the request's contract; none where the line does not read as a request."""
        # Which variant it names is of no matter here, and may be one that this version does not know.
        parsed = parse_line(accepted["line"], line, variant_override=BASELINE.override)
        if isinstance(parsed, BadLine):
            return ()
        contract = parsed.contract
        return [AskedField(name, contract.described(name), contract.is_required(name)) for name in contract.fields]

    def answered(self, called: Mapping[str, Any], body: bytes) -> Answer:
        """What the reply says: the message's text, and the object in it where there is one."""
        try:
            text = recorded_reply(Past("ModelCalled", called, body)).content
        except ImpossibleHistory:
            return Answer(None, None)
        try:
            value = None if text is None else read_answer(text)[0]
        except AnswerError:
            value = None
        return Answer(text, value if isinstance(value, dict) else None)
