"""The page with the free text: everything that was said, nothing that acts, and what is not as recorded says so."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings

from ledger.events import FallbackApplied, LeakRejected, NewEvent, ParseFailed, Payload, RequestRejected, Retried
from ledger.projections.commitments import ContentAltered
from ledger.projections.conversations import Evidence, as_of_position, conversations
from ledger.projections.results import results
from ledger.projections.tables import fold
from ledger.render import results_html, results_html_page
from ledger.render.safe import parts, terminal
from ledger.store import Store, open_store
from ledger.store.errors import LedgerMalformed
from runner.read_again import Reading
from tests.cli.program import request_line
from tests.ledger.projections.test_results import Told, completed, intake, position_of, redact, told
from tests.ledger.store.making import some
from tests.stories import accepted, call_failed, call_started, called, output_accepted, output_text, started, stories

ACTS = "</pre></td></style><script>alert(1)</script><img src=x onerror=y>\"'&\u202e\x00\x1b[2J\u200b"
TAGS = (
    "html head meta title style body main h1 h2 h3 h4 p div span strong ul ol li dl dt dd table caption thead tbody tr "
    "th td nav article header section a pre code details summary wbr"
)
ATTRIBUTES = "lang charset http-equiv content name scope class id href open aria-label aria-labelledby tabindex role"


class Page(HTMLParser):
    """What a browser would make of it: tags in balance, attributes, text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page.decode("utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("sqlite://", "create", fold=fold) as opened:
        yield opened


@pytest.fixture
def either(ledger_url: str) -> Iterator[Store]:
    with open_store(ledger_url, "create", fold=fold) as opened:
        yield opened


def page_of(store: Store, as_of: int | None = None, **options: Any) -> bytes:
    return b"".join(results_html.render(store, "run-1", as_of_position(store, as_of), Reading(), **options))


def text_of(store: Store, as_of: int | None = None, **options: Any) -> str:
    return Page(page_of(store, as_of, **options)).text


def row_of(page: bytes, name: str) -> str:
    """The text of the last table row that begins with this cell."""
    *_, row = re.findall(rf'<tr><th scope="row">{re.escape(name)}</th>(.*?)</tr>', page.decode(), re.DOTALL)
    cells = re.findall("<td.*?>(.*?)</td>", row, re.DOTALL)
    return " | ".join(unescape(re.sub("<[^>]*>", "", cell)) for cell in cells)


# --- what is told ---------------------------------------------------------------------------


def line_of(number: int, **changes: Any) -> str:
    return request_line(number, **changes)


def sent(*texts: str) -> str:
    roles = ("system", "user")
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    return json.dumps({"messages": messages, "model": "m-1", "stream": False, "temperature": 0.25})


def reply(content: str | None) -> str:
    message = {"role": "assistant", "content": content}
    return json.dumps({"id": "r-1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def run_of(*of_requests: Sequence[Told]) -> list[NewEvent]:
    return told(started(), *(event for events in of_requests for event in events), intake(len(of_requests)))


def one_request(*events: tuple[Payload, str | None], line: str | None = None) -> list[NewEvent]:
    first: Told = (accepted(1, "INC-1"), "INC-1", line_of(1) if line is None else line)
    rest: list[Told] = [(payload, "INC-1") if said is None else (payload, "INC-1", said) for payload, said in events]
    return told(started(), first, *rest)


def answered(action: str = "restart", content: str | None = None) -> list[tuple[Payload, str | None]]:
    facts = output_accepted(allowances=["fence"], blocked_by_policy=True)
    output = output_text(facts, action)
    return [
        (call_started(1), sent("You decide.", "Decide on 1.")),
        (called(1), reply(output if content is None else content)),
        (facts, output),
    ]


def refused(code: str, *fields: str) -> ParseFailed:
    named = f":{','.join(fields)}" if fields else ""
    return ParseFailed(turn=1, code=f"model_output_{code}{named}", fields=list(fields))


# --- the page -------------------------------------------------------------------------------


@settings(max_examples=40)
@given(stories())
def test_every_run_is_a_page_in_balance_that_runs_and_loads_nothing(story: list[NewEvent]) -> None:
    with open_store("sqlite://", "create", fold=fold) as store:
        store.append(story)
        data = page_of(store)
    page = Page(data)
    assert {tag for tag, _ in page.tags} <= set(TAGS.split())
    assert {name for _, attributes in page.tags for name in attributes} <= set(ATTRIBUTES.split())
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {f"#{name}" for name in ids} >= {at["href"] for tag, at in page.tags if tag == "a"}
    assert len([tag for tag, _ in page.tags if tag == "h1"]) == 1
    assert all(attributes.get("scope") in ("row", "col") for tag, attributes in page.tags if tag == "th")


def test_the_policy_of_the_page_allows_its_own_style_and_nothing_else(store: Store) -> None:
    store.append(one_request(*answered()))
    data = page_of(store)
    (policy,) = re.findall(rb'Content-Security-Policy" content="([^"]*)"', data)
    (style,) = re.findall(rb"<style>(.*?)</style>", data, re.DOTALL)
    digest = base64.b64encode(sha256(style).digest()).decode()
    assert policy.decode() == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert b"url(" not in style
    assert b"@import" not in style


def test_whatever_was_said_is_text_and_what_acts_or_hides_is_a_marked_escape(store: Store) -> None:
    facts = output_accepted(2)
    output = output_text(facts, ACTS, added={"more": ACTS})
    half = json.dumps({"content": ACTS + "\ud83d"})
    events: list[tuple[Payload, str | None]] = [
        (call_started(1), sent(ACTS, ACTS)),
        (call_failed(1, "http_500", http_status=500, will_retry=True, wait_ms=10), f"http_500\n\n{ACTS}"),
        (call_started(2), sent(ACTS, ACTS + half)),
        (called(2), reply(f"{ACTS}{half}\ud83d")),
        (refused("invalid_fields", "risk_level"), None),
        (Retried(turn=2, code="model_output_invalid_fields:risk_level"), None),
        (call_started(3, 2), sent(ACTS, ACTS + "then" + ACTS)),
        (called(3, 2), reply(output)),
        (facts, output),
    ]
    store.append(one_request(*events, line=line_of(1, user_prompt=ACTS)))
    data = page_of(store)
    page = Page(data)
    assert {tag for tag, _ in page.tags} <= set(TAGS.split())
    assert not re.search("[\x00\x1b\u200b\u202e\ud83d]", data.decode())
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert '<span class="escape">\\u202e\\x00\\x1b</span>[2J' in data.decode()
    assert r"\ud83d" in page.text


def test_the_parts_of_a_text_are_together_what_a_terminal_is_shown() -> None:
    for text in ("", "plain", ACTS, "\x00\x00a\x1b", "é\u202e"):
        found = list(parts(text))
        assert "".join(part for part, _ in found) == terminal(text)
        assert [part for part, acts in found if not acts] == [
            part for part in re.split(r"[\x00\x1b\u200b\u202e]+", text) if part
        ]


def test_a_text_keeps_its_lines_and_its_first_newline(store: Store) -> None:
    store.append(one_request(*answered(content="\nfirst\n\n  second")))
    assert b"<pre>\n\nfirst\n\n  second</pre>" in page_of(store)


def test_a_very_long_text_scrolls_in_its_box_and_what_is_left_out_is_counted(store: Store) -> None:
    longest = results_html_page.LONGEST
    store.append(one_request(*answered(content="x" * (longest + 1234))))
    data = page_of(store)
    (box,) = re.findall(
        rb'<pre class="long" tabindex="0" role="region" aria-label="The answer[^"]*">\n(x*)</pre>', data
    )
    assert len(box) == longest
    assert b"1,234 more characters left out here; replay-ledger show --content has the whole text." in data


# --- what it says ---------------------------------------------------------------------------


def test_each_event_is_on_the_timeline_with_its_facts(store: Store) -> None:
    failed = call_failed(1, "rate_limited", http_status=429, retry_after_ms=1500, wait_ms=1500, will_retry=True)
    first, *rest = answered()
    store.append(one_request(first, (failed, "rate_limited"), (call_started(2), first[1]), (called(2), *rest[0][1:])))
    data = page_of(store)
    (position,) = (position_of(store, "ModelCallFailed", "INC-1"),)
    row = row_of(data, str(position)).split(" | ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{15}Z", row[0])
    assert row[1:9] == ["call failed", "1", "1", "429", "1.2 ms", "1,500 ms", "rate_limited", "12 bytes"]
    assert "retry_after_ms 1500, will_retry true" in row[9]
    reply_row = row_of(data, str(position_of(store, "ModelCalled", "INC-1")))
    assert "prompt_tokens 100" in reply_row
    assert "cached_tokens" not in reply_row  # unknown, so not said
    text = Page(data).text
    assert "Failed: rate_limited, HTTP 429, after 1.2 ms; tried again after 1,500 ms." in text
    assert "The same body as in attempt 1, byte for byte." in text


def test_a_prompt_stands_beside_its_reply_and_the_corrective_turn_shows_what_was_added(store: Store) -> None:
    facts = output_accepted(2)
    store.append(
        one_request(
            (call_started(1), sent("You decide.", "Decide on 1.")),
            (called(1), reply("I would restart it.")),
            (refused("invalid_json"), None),
            (Retried(turn=2, code="model_output_invalid_json"), None),
            (call_started(2, 2), sent("You decide.", "Decide on 1. That was no JSON.")),
            (called(2, 2), reply(output_text(facts))),
            (facts, output_text(facts)),
        )
    )
    text = text_of(store)
    said = (
        *(
            "Attempt 1, turn 1",
            "You decide.",
            "Decide on 1.",
            "I would restart it.",
            "broken: model_output_invalid_json",
        ),
        *("The corrective turn", "Attempt 2, turn 2", "System message: the same as in attempt 1."),
        *("User message: first, the same as in attempt 1 (12 characters).", " That was no JSON.", "kept"),
    )
    places = [text.index(one, text.index("Timeline")) for one in said]
    assert places == sorted(places)
    assert text.count("You decide.") == 1
    assert "temperature 0.25" in text


CONTRACT = {
    "properties": {"ticket": {"type": "string"}, "note": {"type": "string"}},
    "required": ["ticket"],
}
FIVE = {
    "proposed_action": "restart",
    "action_plan": ["a"],
    "risk_level": "low",
    "requires_human_approval": False,
    "blocked_by_policy": False,
}


@pytest.mark.parametrize(
    ("answer", "judged", "verdicts"),
    [
        (
            {"risk_level": "low"},
            refused("missing_fields", "proposed_action", "ticket"),
            {"proposed_action": "- | missing", "ticket": "- | missing", "risk_level": '"low" | given, not looked at'},
        ),
        (
            {**FIVE, "risk_level": "severe", "ticket": 7},
            refused("invalid_fields", "risk_level", "ticket"),
            {
                "risk_level": '"severe" | invalid',
                "ticket": "7 | invalid",
                "proposed_action": '"restart" | ok',
                "note": "- | not given (optional)",
            },
        ),
        (
            {**FIVE, "ticket": "T-1"},
            refused("invalid_fields", "*"),
            {"the object as a whole": "- | invalid", "ticket": '"T-1" | ok'},
        ),
        ("no JSON", refused("invalid_json"), {"proposed_action": "- | not looked at", "note": "- | not looked at"}),
        (
            {**FIVE, "ticket": "T-1"},
            output_accepted(risk_level="low"),
            {"ticket": '"T-1" | ok', "requires_human_approval": "false | ok", "note": "- | not given (optional)"},
        ),
    ],
)
def test_the_contract_is_told_field_by_field_as_it_was_judged(
    store: Store, answer: Mapping[str, Any] | str, judged: Payload, verdicts: Mapping[str, str]
) -> None:
    said = answer if isinstance(answer, str) else json.dumps(answer)
    output = said if judged.TYPE == "OutputAccepted" else None
    events: list[tuple[Payload, str | None]] = [(call_started(1), sent("a", "b")), (called(1), reply(said))]
    store.append(one_request(*events, (judged, output), line=line_of(1, response_contract=CONTRACT)))
    data = page_of(store)
    for field, told_of in verdicts.items():
        _, _, rest = row_of(data, field).partition(" | ")
        assert rest == told_of, field
    if "risk_level" in verdicts:
        assert row_of(data, "risk_level").startswith('one of "low"')
    assert row_of(data, "note").startswith("string (optional)")


def test_an_accepted_answer_is_told_with_its_flags_and_whose_word_they_are(store: Store) -> None:
    store.append(one_request(*answered("restart checkout")))
    data = page_of(store)
    assert row_of(data, "proposed action") == "restart checkout"
    assert row_of(data, "blocked by policy") == "yes"
    text = Page(data).text
    assert "Allowances that the parser made: fence." in text
    assert "“Blocked by policy” is what the model said of its own answer; no policy engine was asked." in text


def test_a_fallback_is_told_to_be_no_decision_of_the_model(store: Store) -> None:
    failed = call_failed(1, "http_503", http_status=503)
    fallback = FallbackApplied(code="http_503", turn=1)
    store.append(one_request((call_started(1), sent("a", "b")), (failed, "http_503"), (fallback, None)))
    data = page_of(store)
    assert "It is the runner's, not the model's decision." in Page(data).text
    assert [row_of(data, name) for name in ("risk level", "blocked by policy", "proposed action")] == [
        *("critical", "yes", "(empty)")
    ]


def test_the_index_says_of_a_fallback_what_the_other_formats_say_and_that_it_is_not_the_models(store: Store) -> None:
    fallback = FallbackApplied(code="model_output_truncated", turn=1)
    failed: list[Told] = [(accepted(1, "INC-1"), "INC-1", line_of(1)), (fallback, "INC-1")]
    good: list[Told] = [(payload, "INC-2", text) for payload, text in answered() if text is not None]
    store.append(run_of(failed, [(accepted(2, "INC-2"), "INC-2", line_of(2)), *good]))
    data = page_of(store)
    (output,) = [one["model_output"] for one in results(store, "run-1") if one["fallback_used"]]
    assert (output["risk_level"], output["blocked_by_policy"], output["requires_human_approval"]) == (
        *("critical", True, True),
    )
    index = data[: data.index(b"<article")]
    said = "INC-1 | fallback (failed closed) | critical * | yes * | yes * | 0 | model_output_truncated"
    assert row_of(index, "1") == said
    assert row_of(index, "2").startswith("INC-2 | accepted at first | medium | yes | yes | ")
    note = "the runner's word, not the model's"
    assert note in Page(data).text
    assert note not in text_of(store, request_ids={"INC-2"})


def test_codes_and_ids_of_any_length_may_be_broken_where_their_parts_end(store: Store) -> None:
    name = "incident:edge_proxy:2026-11-30:alert_000001"
    fallback = FallbackApplied(code="model_output_truncated", turn=1)
    store.append(run_of([(accepted(1, name), name, line_of(1)), (fallback, name)]))
    data = page_of(store)
    held = "incident:<wbr>edge_<wbr>proxy:<wbr>2026-11-30:<wbr>alert_<wbr>000001</a>"
    assert f'<td class="code name"><a href="#line-1">{held}' in data.decode()
    assert data.count(b'<td class="code">model_<wbr>output_<wbr>truncated</td>') == 2
    style = data[: data.index(b"</style>")].decode()
    assert ".index .code { white-space: normal; overflow-wrap: anywhere; min-width: 11rem }" in style


def test_durations_are_rounded_half_up_as_on_the_page_of_a_report(store: Store) -> None:
    first, (_, body), *_ = answered()
    store.append(one_request(first, (called(1, duration_us=41_950), body)))
    data = page_of(store)
    assert "HTTP 200 after 42.0 ms" in Page(data).text
    assert " | 42.0 ms | " in row_of(data, str(position_of(store, "ModelCalled", "INC-1")))


def test_every_line_is_in_the_index_and_leads_to_the_lines_beside_it(store: Store) -> None:
    bad = RequestRejected(line=2, request_id="INC-2", code="request_invalid", field="user_prompt", first_line=None)
    leak = LeakRejected(line=3, request_id=None, findings=[])
    requests: list[Told] = [(accepted(1, "INC-1"), "INC-1", line_of(1)), (accepted(4, "INC-4"), "INC-4", line_of(4))]
    store.append(told(started(), requests[0], (bad, "$", "{}")[0], leak, requests[1], intake(4), completed()))
    data = page_of(store)
    links = [attributes["href"] for tag, attributes in Page(data).tags if tag == "a"]
    assert links[1:5] == ["#line-1", "#line-2", "#line-3", "#line-4"]
    assert links[5:] == [
        "#index",
        "#line-2",
        "#line-1",
        "#index",
        "#line-3",
        "#line-2",
        "#index",
        "#line-4",
        "#line-3",
        "#index",
    ]
    text = Page(data).text
    assert text.count("Never put to the model; its text is not shown.") == 2
    assert "line-3" in text


def test_an_attempt_without_an_outcome_is_said_to_have_none(store: Store) -> None:
    store.append(one_request((call_started(1), sent("a", "b"))))
    text = text_of(store)
    assert "No outcome of this attempt is on record." in text
    assert "There is none." in text


def test_only_the_requests_that_are_asked_for_are_on_the_page(store: Store) -> None:
    store.append(run_of(*([(accepted(n, f"INC-{n}"), f"INC-{n}", line_of(n))] for n in (1, 2, 3))))
    data = page_of(store, request_ids={"INC-2"})
    assert re.findall(rb'<article id="([^"]*)"', data) == [b"line-2"]
    assert b"only the requests asked for: INC-2" in data
    assert [result["request_id"] for result in results(store, "run-1", None, {"INC-2"})] == []


def test_nobody_was_told_how_far_the_counting_was_that_comes_before_the_page(store: Store) -> None:
    store.append([*told(started()), *some(2_500, run_id="run-1"), *told(intake(2_500))])
    seen: list[tuple[int, int, str]] = []
    pieces = results_html.render(
        store, "run-1", store.head().size, Reading(), request_ids={"q7"}, progress=lambda *how: seen.append(how)
    )
    assert seen == [(1_000, 2_502, "events"), (2_000, 2_502, "events")]
    assert sum(1 for _ in pieces)
    assert {what for _, _, what in seen[2:]} == {"lines of the index", "lines"}


def test_as_of_an_earlier_position_what_came_later_is_not_there(store: Store) -> None:
    store.append(one_request(*answered("restart checkout")))
    upto = position_of(store, "ModelCallStarted", "INC-1")
    text = text_of(store, upto)
    assert "restart checkout" not in text
    assert "No outcome of this attempt is on record." in text


# --- evidence that is gone, or not what it was ----------------------------------------------


def test_what_was_erased_is_said_to_be_and_by_which_event(either: Store) -> None:
    either.append(one_request(*answered("restart checkout")))
    positions = [event.position for event in either.events("run-1", request_id="INC-1")]
    redact(either, *positions)
    faults: list[Evidence] = []
    data = page_of(either, request_ids=None, faults=faults)
    text = Page(data).text
    by = positions[-1] + 1
    assert faults == []
    assert "restart checkout" not in text
    assert f"Erased: the body sent in attempt 1 (position {positions[1]}) was erased by event {by}." in text
    assert f"Erased: what came back in attempt 1 (position {positions[2]}) was erased by event {by}." in text
    assert row_of(data, "proposed action") == f"[erased by event {by}]"
    assert row_of(data, "risk level") == "medium"
    assert f"erased by event {by}" in row_of(data, str(positions[3]))
    assert "Each text of this page that was not erased is what its event committed to." in text


def put_in_its_place(store: Store, position: int, sql: str) -> None:
    """As an owner of the database can, once the triggers are out of the way."""
    with store.exclusively() as owner:
        if store.dialect == "postgresql":
            owner.execute("ALTER TABLE contents DISABLE TRIGGER USER")
        else:
            for (name,) in list(store.rows("SELECT name FROM sqlite_master WHERE type = 'trigger'")):
                owner.execute(f'DROP TRIGGER "{name}"')
        owner.execute(sql, {"position": position})


def test_a_text_that_is_not_what_was_recorded_is_flagged_and_is_no_result(either: Store) -> None:
    either.append(one_request(*answered("restart checkout")))
    position = position_of(either, "OutputAccepted", "INC-1")
    assert len(list(results(either, "run-1"))) == 1
    put_in_its_place(
        either, position, "UPDATE contents SET body = replace(body, 'checkout', 'billing') WHERE position = :position"
    )
    faults: list[Evidence] = []
    data = page_of(either, faults=faults)
    assert [(evidence.position, evidence.state) for evidence in faults] == [(position, "altered")]
    text = Page(data).text
    assert f"Does not match the record: the text of the answer (position {position}) is not what was recorded." in text
    assert f"Of this line, not as recorded: the content of position {position}." in text
    assert "1 content of this page not as recorded." in text
    assert f"position {position}: is not what was recorded" in text
    assert "does not match" in row_of(data, str(position))
    with pytest.raises(ContentAltered, match=f"content of position {position} does not match the record"):
        list(results(either, "run-1"))


@pytest.mark.parametrize(
    ("sql", "state", "said"),
    [
        ("DELETE FROM contents WHERE position = :position", "missing", "is not there, and no redaction says why"),
        ("UPDATE contents SET encoding = 'base64', body = '?' WHERE position = :position", "undecodable", "be decoded"),
        ("UPDATE contents SET salt = zeroblob(32) WHERE position = :position", "altered", "is not what was recorded"),
        ("UPDATE contents SET salt = 'x' WHERE position = :position", "altered", "is not what was recorded"),
        ("UPDATE contents SET body = '[1]' WHERE position = :position", "altered", "is no JSON object"),
    ],
)
def test_a_text_that_is_gone_or_cannot_be_read_is_flagged(store: Store, sql: str, state: str, said: str) -> None:
    store.append(one_request(*answered()))
    position = position_of(store, "OutputAccepted", "INC-1")
    put_in_its_place(store, position, sql)
    faults: list[Evidence] = []
    text = text_of(store, faults=faults)
    assert [evidence.state for evidence in faults] == [state]
    assert said in text
    with pytest.raises(LedgerMalformed, match=str(position)):
        list(results(store, "run-1"))


def test_an_event_that_cannot_be_read_is_on_the_timeline(store: Store) -> None:
    store.append(one_request(*answered()))
    position = position_of(store, "ModelCalled", "INC-1")
    put_in_its_place(store, position, "UPDATE events SET payload = '{' WHERE position = :position")
    data = page_of(store)
    assert "unreadable: its payload is not JSON" in row_of(data, str(position))
    assert f"1 event cannot be read: position {position}." in Page(data).text


def test_a_request_whose_first_event_cannot_be_read_is_named_although_it_has_no_place(store: Store) -> None:
    store.append(one_request(*answered()))
    position = position_of(store, "RequestAccepted", "INC-1")
    put_in_its_place(store, position, "UPDATE events SET payload = '[]' WHERE position = :position")
    text = text_of(store)
    assert f"1 event cannot be read: position {position}. What was said there is not on this page." in text


# --- its size -------------------------------------------------------------------------------


def test_the_texts_of_one_request_are_held_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(run_of(*([(accepted(n, f"INC-{n}"), f"INC-{n}", line_of(n))] for n in range(1, 21))))
    asked: list[list[int]] = []
    contents = Store.contents

    def counted(self: Store, positions: Any, undecodable: set[int] | None = None) -> dict[int, bytes]:
        asked.append(list(positions))
        return contents(self, asked[-1], undecodable)

    monkeypatch.setattr(Store, "contents", counted)
    told_of = conversations(store, "run-1", as_of_position(store, None))
    next(told_of)
    assert [len(positions) for positions in asked] == [1]
    pieces = results_html.render(store, "run-1", as_of_position(store, None), Reading())
    asked.clear()
    assert next(piece for piece in pieces if b"<article" in piece).count(b"<article") == 1
    assert len(asked) == 1
    assert sum(piece.count(b"<article") for piece in pieces) == 19
