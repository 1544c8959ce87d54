"""Statements become rows of their own tables, once, and only if a route can have made them."""

import shutil

import pytest

from cloud import requarantine
from cloud.job.run import Report
from cloud.landing.file import Link, Row
from cloud.tables.schema import CROSSINGS, LINKS, STATEMENT_REFUSED, STATEMENTS
from tests.cloud.job.cut_job import cut_after
from tests.cloud.job.links import dropped, handed, handed_on, stated
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row
from wire.route_numbers import STATEMENT_TYPE

BATCH = {"batch": 1}
ABOUT = {"gateway": "barn", "route": "central", "epoch": "0000001f", "statement": 1}
GENUINE = stated("barn", 1, 1, 9, [handed_on("x", 7, 1, 9)], [dropped("expired", "x", 4, 5)], refused=[(2, 2), (7, 8)])


def test_a_statement_is_taken_in_once_however_often_it_lands(lake: Lake) -> None:
    land(lake.landing, [GENUINE, handed("x", 1, 1, "barn"), GENUINE], [GENUINE])
    assert lake.ingest() == Report(1, 2, rows_in=4, new=2, duplicates=2, readings=2)
    land(lake.landing, [GENUINE], boot=2)
    assert lake.ingest() == Report(1, 1, rows_in=1, duplicates=1)
    (said,) = lake.rows("statements")
    stated_at = {"stated_at": said["stated_at"]}
    assert said["stated_at"].timestamp() * 1000 == GENUINE.received_ms
    assert said == ABOUT | {"first": 1, "last": 9, "backfill": False, "seq": 1} | stated_at | BATCH
    origin = {"origin": "x", "origin_epoch": "0000cafe"}
    counted = {"highest": 9, "messages": 7, "first": 1, "last": 9}
    assert lake.rows("statement_origins") == [ABOUT | origin | counted | stated_at | BATCH]
    reason = {"reason": "expired", "consumer": "route/central", "first": 4, "last": 5, "messages": 2}
    assert lake.rows("statement_dropped") == [ABOUT | origin | reason | stated_at | BATCH]
    assert lake.rows("statement_refused") == [ABOUT | {"lo": lo, "hi": hi} | BATCH for lo, hi in ((2, 2), (7, 8))]
    assert len(lake.rows("bronze_messages")) == 2
    assert {one["origin"] for one in lake.rows("readings")} == {"x"}


def test_a_file_whose_only_message_with_a_number_is_a_conflict_is_taken_in(lake: Lake) -> None:
    genuine = handed("x", 1, 1, "barn")
    land(lake.landing, [genuine], [genuine._replace(payload=b"another"), row(1)])
    assert lake.ingest() == Report(1, 2, rows_in=3, new=2, quarantined=1, readings=4)
    assert [(one["lo"], one["hi"]) for one in lake.rows("links")] == [(1, 1)]


@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_links_and_statements_are_there_once_after_cuts_at_any_of_their_tables(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, checkpoint: str
) -> None:
    for number, point in enumerate((LINKS, CROSSINGS, STATEMENTS, STATEMENT_REFUSED), 1):
        message = handed("x", number, number, "barn")
        statement = stated("barn", number, 1, 9, [handed_on("x", 9, 1, 9)], refused=[(number, number)])
        land(lake.landing, [message, statement])
        cut_after(point, lake, monkeypatch)
        if checkpoint == "lost":
            shutil.rmtree(lake.folder / "_checkpoint")
    lake.ingest()
    numbers = [number for one in lake.rows("links") for number in range(one["lo"], one["hi"] + 1)]
    assert sorted(numbers) == [1, 2, 3, 4, 10, 10, 10, 10]
    runs = [(one["lo"], one["hi"], one["first_number"]) for one in lake.rows("crossings") if one["origin"] == "x"]
    assert sorted(runs) == [(number, number, number) for number in (1, 2, 3, 4)]
    for name in ("statements", "statement_origins", "statement_refused"):
        assert sorted(one["statement"] for one in lake.rows(name)) == [1, 2, 3, 4]


def forged() -> dict[str, Row]:
    """Messages that seem to be statements, by what is said of them."""
    elsewhere = [Link(31, 10, "barn", "other"), Link(31, 10, "stable", "central")]
    deep = b'{"v":1,"gateway":' + b"[" * 100_000
    surrogate = GENUINE.payload.replace(b'"x"', b'"\\ud800"')
    found = {
        "a statement is JSON in UTF-8": GENUINE._replace(payload=b"\xff"),
        "a statement is a JSON object": GENUINE._replace(payload=b"[]"),
        "version 2 of a statement, expected 1": GENUINE._replace(payload=GENUINE.payload.replace(b'"v":1', b'"v":2')),
        "a statement needs 'refused'": GENUINE._replace(payload=GENUINE.payload.replace(b'"refused"', b'"other"')),
        "last -1 is not within": GENUINE._replace(payload=GENUINE.payload.replace(b'"last":9', b'"last":-1')),
        "JSON": GENUINE._replace(payload=deep),
        "surrogates not allowed": GENUINE._replace(payload=surrogate),
        "its content type is 'application/json'": GENUINE._replace(content_type="application/json"),
        "its content type is None": GENUINE._replace(content_type=None),
        "barn/central makes none on the topic holdfast/statement/barn/other": GENUINE._replace(
            topic="holdfast/statement/barn/other"
        ),
        "barn/central makes none on the topic telemetry": GENUINE._replace(topic="telemetry"),
        "its origin is 'mallory', not its gateway 'barn'": GENUINE._replace(origin="mallory"),
        "it did not come over the route 'central' of 'barn'": GENUINE._replace(via=elsewhere),
        "beyond the year 9999": GENUINE._replace(received_ms=10**15),
    }
    return {said: one._replace(seq=seq) for seq, (said, one) in enumerate(found.items(), 1)}


def test_a_statement_that_no_route_can_have_made_is_quarantined_with_the_reason(lake: Lake) -> None:
    seeming = forged()
    land(lake.landing, [*seeming.values(), GENUINE._replace(seq=99), row(1)])
    assert lake.ingest() == Report(1, 1, rows_in=16, new=2, quarantined=14, readings=2)
    reasons = {(one["origin"], one["seq"]): one["reason"] for one in lake.rows("quarantine")}
    for said, message in seeming.items():
        assert said in reasons[message.origin, message.seq]
    assert len(lake.rows("statements")) == 1
    assert {one["kind"] for one in lake.rows("quarantine")} == {"undecodable"}


def test_what_is_no_statement_stays_in_quarantine_when_that_is_decoded_again(lake: Lake) -> None:
    land(lake.landing, list(forged().values()))
    lake.ingest()
    before = lake.rows("quarantine")
    assert requarantine(lake.spark, lake.landing, lake.folder).readings == 0
    assert lake.rows("quarantine") == before
    assert lake.rows("statements") == []


def test_two_parts_of_a_route_and_messages_of_two_links_have_their_numbers_in_the_tables(lake: Lake) -> None:
    over_two = [handed("x", seq, seq, "barn", Link(7, 10 * seq, "centre", "up")) for seq in (1, 2, 3)]
    land(lake.landing, [*over_two, handed("y", 1, 5, "barn"), handed("x", 4, 4, "barn")], [row(1, "z")])
    lake.ingest()
    link: dict[str, object] = {"gateway": "barn", "route": "central", "epoch": "0000001f"}
    up: dict[str, object] = {"gateway": "centre", "route": "up", "epoch": "00000007"}
    batches: dict[str, object] = {"first_batch": 1, "batch": 1}
    assert lake.rows("links") == [
        link | {"lo": 1, "hi": 5} | batches,
        *(up | {"lo": number, "hi": number} | batches for number in (10, 20, 30)),
    ]
    runs = [
        (one["origin"], one["lo"], one["hi"], one["route"], one["first_number"], one["last_number"], one["hop"])
        for one in lake.rows("crossings")
    ]
    assert sorted(runs) == [
        *[("x", 1, 3, "up", 10, 30, 2), ("x", 1, 4, "central", 1, 4, 1), ("y", 1, 1, "central", 5, 5, 1)],
    ]


def test_a_statement_in_a_payload_of_another_content_type_is_no_statement(lake: Lake) -> None:
    message = row(1)._replace(content_type=f"{STATEMENT_TYPE}+json")
    land(lake.landing, [message])
    lake.ingest()
    assert lake.rows("statements") == []
    assert [one["reason"] for one in lake.rows("quarantine")] == [
        f"nothing here decodes content type '{STATEMENT_TYPE}+json'"
    ]
