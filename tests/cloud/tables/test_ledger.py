from cloud.landing.manifest import Manifest
from cloud.tables.ledger import files_with, find_suspects, new_intervals
from cloud.transforms.classify import Suspect
from tests.cloud.messages import EPOCH

GARAGE = ("garage", EPOCH)
CELLAR = ("cellar", EPOCH)


def file(*spans: tuple[int, int], origin: str = "garage", rows: int | None = None) -> Manifest:
    held = sum(hi - lo + 1 for lo, hi in spans) if rows is None else rows
    intervals = [(origin, EPOCH, lo, hi) for lo, hi in spans]
    return Manifest(1, "f", "lander-1", 1, 1, held, 0, "", intervals)


def test_with_an_empty_ledger_everything_is_new_and_nothing_suspect() -> None:
    files = [file((1, 5)), file((6, 9), (12, 12)), file((1, 3), origin="cellar")]
    assert new_intervals(files, {}) == {GARAGE: [(1, 9), (12, 12)], CELLAR: [(1, 3)]}
    assert find_suspects(files, {}) == []


def test_known_intervals_are_suspect_and_not_new() -> None:
    known = {GARAGE: [(3, 4), (8, 20)]}
    assert new_intervals([file((1, 10))], known) == {GARAGE: [(1, 2), (5, 7)]}
    assert find_suspects([file((1, 10))], known) == [
        Suspect("garage", EPOCH, 3, 4, known=True),
        Suspect("garage", EPOCH, 8, 10, known=True),
    ]


def test_unknown_interval_of_two_files_is_suspect() -> None:
    files = [file((1, 10)), file((8, 14))]
    assert find_suspects(files, {GARAGE: [(9, 9)]}) == [
        Suspect("garage", EPOCH, 9, 9, known=True),
        Suspect("garage", EPOCH, 8, 8, known=False),
        Suspect("garage", EPOCH, 10, 10, known=False),
    ]


def test_file_with_more_rows_than_numbers_is_suspect_as_a_whole() -> None:
    assert find_suspects([file((1, 4), rows=5), file((5, 6))], {}) == [Suspect("garage", EPOCH, 1, 4, known=False)]


def test_batch_that_brings_nothing_adds_nothing() -> None:
    assert new_intervals([file((2, 3))], {GARAGE: [(1, 5)]}) == {}


def test_only_files_with_rows_of_a_suspect_are_read_again() -> None:
    files = [file((1, 10)), file((11, 20), (31, 40)), file((21, 30)), file((11, 20), origin="cellar")]
    suspects = [Suspect("garage", EPOCH, 20, 20, known=True), Suspect("garage", EPOCH, 25, 33, known=False)]
    assert list(files_with(files, suspects)) == files[1:3]
    assert list(files_with(files, [Suspect("garage", EPOCH + 1, 1, 99, known=True)])) == []
