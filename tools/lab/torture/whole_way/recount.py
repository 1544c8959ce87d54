"""What the tables hold, by sender and message, and where a message that they lack was seen last."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds

from cloud import OpenTables
from tools.lab.journal import Made
from tools.lab.torture.publisher import EPOCH
from tools.lab.torture.whole_way.oracle import Gap, Journal, Rows, Verdict, judge, untyped
from tools.lab.torture.whole_way.senders import LIMITED, Sender

MESSAGES = """
SELECT number, CAST(sum(rows) AS BIGINT) AS rows, CAST(count(*) AS BIGINT) AS different
FROM (
    SELECT CAST(floor((value - 1) / {records}) AS BIGINT) + 1 AS number, value, count(*) AS rows
    FROM readings WHERE device = '{name}' AND value = floor(value) AND metric = 'count' GROUP BY value)
GROUP BY number
"""
"""By value, since each is there once: number and place in the message follow from it."""
STRANGE = "SELECT count(*) FROM readings WHERE device = '{name}' AND (metric <> 'count' OR value <> floor(value))"
MADE = """
SELECT seq, CAST(count(*) AS BIGINT) AS rows, CAST(count(DISTINCT record) AS BIGINT) AS different
FROM readings WHERE origin = '{name}' AND epoch = '{epoch}' GROUP BY seq
"""
GAPS = "SELECT origin, epoch, lo, hi, missing, reason, coalesce(route, '') FROM gaps"
SEEN_MAX = 3  # missing messages of a sender that are looked for


class Recount:
    """What a reading of the tables found. `violations` is empty where all holds."""

    def __init__(self, tables: Path, senders: Iterable[Sender], made: Iterable[Made]) -> None:
        self.verdicts: list[Verdict] = []
        self.violations: list[str] = []
        senders, made = list(senders), list(made)
        with OpenTables(tables) as opened:
            self.gaps = [Gap(*row) for row in opened.select(GAPS).rows]  # type: ignore[arg-type]
            for sender in senders:
                self.verdicts.append(self._judge_sender(opened, sender))
            for name in sorted({one.origin for one in made}):
                self.verdicts += self._judge_device(opened, name, [one for one in made if one.origin == name])
            (self.messages,) = (row[0] for row in opened.select("SELECT count(*) FROM bronze_messages").rows)
        self.violations += [text for one in self.verdicts for text in one.violations]
        self.violations += untyped(self.gaps, LIMITED)

    def _judge_sender(self, opened: OpenTables, sender: Sender) -> Verdict:
        kind = sender.kind
        sql = MESSAGES.format(records=kind.records, name=kind.name)
        found = {number: Rows(rows, different) for number, rows, different in _numbers(opened, sql)}
        accepted = set(sender.accepted)
        journal = Journal(
            kind.name,
            dict.fromkeys(sender.numbers(accepted), kind.records),
            uncertain=frozenset(sender.numbers(set(range(1, sender.sent + 1)) - accepted)),
            repeated=frozenset() if kind.has_identity or kind.qos == 2 else frozenset(sender.repeated),
            epoch=f"{EPOCH:08x}" if kind.has_identity else "",
            limited_by=LIMITED if kind.is_limited else "",
        )
        verdict = judge(journal, found, self.gaps)
        ((strange,),) = opened.select(STRANGE.format(name=kind.name)).rows
        if strange:
            verdict.violations.append(f"{strange} readings of {kind.name} are none that it has sent")
        return verdict

    def _judge_device(self, opened: OpenTables, name: str, made: list[Made]) -> Iterator[Verdict]:
        for epoch in sorted({one.epoch for one in made}):
            text = f"{epoch:08x}"
            sql = MADE.format(name=name, epoch=text)
            found = {number: Rows(rows, different) for number, rows, different in _numbers(opened, sql)}
            readings = {one.seq: one.readings for one in made if one.epoch == epoch}
            # What was stored and not counted when the power was cut may be there.
            uncertain = frozenset(found.keys() - readings.keys())
            yield judge(Journal(name, readings, uncertain, epoch=text), found, self.gaps)


def _numbers(opened: OpenTables, sql: str) -> list[tuple[int, int, int]]:
    return opened.select(sql).rows  # type: ignore[return-value]  # the columns of MESSAGES and MADE are whole numbers


def last_seen(landing: Path, tables: Path, verdict: Verdict, sender: Sender | None) -> Iterator[str]:
    """Yields for some messages that the tables lack how far they came."""
    for number in sorted(verdict.lost_messages)[:SEEN_MAX]:
        places = list(_places(landing, tables, number, sender)) or [
            "no landing file has it: it stopped before the lander"
        ]
        yield f"message {number} of {verdict.name}: {'; '.join(places)}"


def _places(landing: Path, tables: Path, number: int, sender: Sender | None) -> Iterator[str]:
    if sender is None:
        return
    text = f'"v":{(number - 1) * sender.kind.records + 1}}}'.encode()
    files = [str(path) for path in landing.glob("[!.]*.parquet")]
    rows = ds.dataset(files, format="parquet").to_table(
        columns=["origin", "epoch", "seq", "payload", "__filename"],
        filter=(pc.field("topic") == sender.topic),
    )
    for row in rows.filter(pc.match_substring(rows["payload"], text)).to_pylist():
        identity = f"{row['origin']}/{row['epoch']:08x}/{row['seq']}"
        yield f"landed as {identity} in {Path(row['__filename']).name}"
        with OpenTables(tables) as opened:
            where = f"origin = '{row['origin']}' AND epoch = '{row['epoch']:08x}' AND seq = {row['seq']}"
            for table in ("bronze_messages", "quarantine"):
                ((count,),) = opened.select(f"SELECT count(*) FROM {table} WHERE {where}").rows
                yield f"{count} times in {table}"
