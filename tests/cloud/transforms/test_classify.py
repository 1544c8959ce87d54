"""Verdicts beside a model that is a dictionary."""

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cloud.transforms.verdicts.classify import CONFLICT, DUPLICATE, NEW, Suspect, classify, find_within

COLUMNS = (
    ("origin", pa.string()),
    ("epoch", pa.int64()),
    ("seq", pa.int64()),
    ("payload", pa.binary()),
    ("topic", pa.string()),
)
SCHEMA = pa.schema(COLUMNS)
Message = tuple[str, int, int, bytes] | tuple[str, int, int, bytes, str]


def table(messages: Sequence[Message]) -> pa.Table:
    """Returns messages as columns; one without a topic is on `t`."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, (*one, "t")[:5], strict=True)) for one in messages], SCHEMA)


def verdicts(
    arrived: Sequence[Message],
    suspects: Sequence[Suspect],
    stored: Sequence[Message] = (),
    conflicts: Sequence[Message] = (),
) -> list[int]:
    """Returns the verdicts of the rows in the order of arrival; a row outside of the suspects is new."""
    rows = table(arrived)
    within = find_within(rows, suspects)
    (doubtful,) = np.nonzero(within >= 0)
    known = np.array([suspects[place].known for place in within[doubtful]], bool)
    found = np.full(len(arrived), NEW)
    found[doubtful] = classify(rows.take(doubtful), np.arange(len(doubtful)), known, table(stored), table(conflicts))
    return found.tolist()


def test_without_suspects_all_is_new() -> None:
    assert verdicts([("a", 1, 1, b"x"), ("a", 1, 2, b"y")], []) == [NEW, NEW]


def test_first_of_an_identity_is_new_and_the_rest_are_duplicates_or_conflicts() -> None:
    arrived = [("a", 1, 5, b"x"), ("a", 1, 5, b"y"), ("a", 1, 5, b"x"), ("a", 1, 5, b"y"), ("a", 1, 6, b"x")]
    suspects = [Suspect("a", 1, 5, 5, known=False)]
    assert verdicts(arrived, suspects) == [NEW, CONFLICT, DUPLICATE, DUPLICATE, NEW]


def test_known_identity_is_judged_by_the_stored_payload() -> None:
    arrived = [("a", 1, 1, b"other"), ("a", 1, 1, b"x"), ("a", 1, 2, b"gone"), ("b", 1, 1, b"x"), ("a", 2, 1, b"x")]
    suspects = [Suspect("a", 1, 1, 2, known=True)]
    stored = [("a", 1, 1, b"x"), ("a", 1, 3, b"gone"), ("b", 1, 1, b"?")]
    assert verdicts(arrived, suspects, stored) == [CONFLICT, DUPLICATE, DUPLICATE, NEW, NEW]


def test_an_equal_payload_on_another_topic_is_a_conflict() -> None:
    arrived = [("a", 1, 1, b"x", "t"), ("a", 1, 1, b"x", "u"), ("a", 1, 1, b"x", "u"), ("a", 1, 2, b"x", "u")]
    suspects = [Suspect("a", 1, 1, 1, known=True), Suspect("a", 1, 2, 2, known=True)]
    stored = [("a", 1, 1, b"x", "t"), ("a", 1, 2, b"x", "t")]
    assert verdicts(arrived, suspects, stored) == [DUPLICATE, CONFLICT, DUPLICATE, CONFLICT]
    assert verdicts(arrived[:1], suspects, stored[:1], [("a", 1, 1, b"x", "u")]) == [DUPLICATE]


def test_conflict_is_found_once_over_batches() -> None:
    arrived = [("a", 1, 1, b"y"), ("a", 1, 1, b"z")]
    suspects = [Suspect("a", 1, 1, 1, known=True)]
    assert verdicts(arrived, suspects, [("a", 1, 1, b"x")], [("a", 1, 1, b"y")]) == [DUPLICATE, CONFLICT]


def test_random_batches_agree_with_a_dictionary(seed: int) -> None:
    choose = random.Random(seed)

    def message() -> Message:
        identity = choose.choice("ab"), choose.choice((1, 2)), choose.randint(1, 12)
        return *identity, choose.choice((b"x", b"y", b"z")), choose.choice("ttu")

    for _ in range(50):
        stored = list({one[:3]: one for one in (message() for _ in range(10)) if one[2] > 6}.values())
        genuine = {one[:3]: one[3:] for one in stored}
        conflicts = list(
            {one for one in (message() for _ in range(10)) if one[:3] in genuine and genuine[one[:3]] != one[3:]}
        )
        seen = set(conflicts) | set(stored)
        arrived = [message() for _ in range(60)]
        expected = []
        for one in arrived:
            first = genuine.setdefault(one[:3], one[3:])
            verdict = DUPLICATE if one in seen else NEW if first == one[3:] else CONFLICT
            seen.add(one)
            expected.append(verdict)
        suspects = [Suspect(*one[:3], one[2], known=True) for one in stored]
        rest = {one[:3] for one in arrived} - {one[:3] for one in stored}
        suspects += [Suspect(*identity, identity[2], known=False) for identity in rest]
        assert verdicts(arrived, suspects, stored, conflicts) == expected


def test_row_is_found_in_the_suspect_interval_that_holds_it() -> None:
    suspects = [Suspect("b", 1, 5, 9, True), Suspect("a", 1, 5, 5, True), Suspect("a", 2, 1, 2, False)]
    rows = [("a", 1, 4), ("a", 1, 5), ("a", 1, 6), ("b", 1, 9), ("b", 1, 10), ("a", 2, 1), ("c", 1, 5), ("b", 2, 5)]
    found = find_within(table([(*one, b"") for one in rows]), suspects)
    assert found.tolist() == [-1, 1, -1, 0, -1, 2, -1, -1]
