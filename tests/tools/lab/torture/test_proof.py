"""Tables that conclude from random histories: none says complete while a message is missing, and no lie counts."""

from cloud.queries.views import VIEWS_FILE
from tools.lab.torture.proof.command import judge
from tools.lab.torture.proof.history import History

COUNT = 60


def drawn(seed: int) -> list[History]:
    return [History(seed * COUNT + place, f"{place}.") for place in range(COUNT)]


def test_no_table_says_complete_while_a_message_is_missing_and_no_lie_changes_a_verdict(seed: int) -> None:
    histories = drawn(seed)
    assert sum(one.lacking for one in histories) > 0
    assert list(judge(histories)) == []


def test_a_view_that_takes_too_much_for_left_out_is_found_out() -> None:
    views = VIEWS_FILE.read_text()
    believing = views.replace(
        "CASE WHEN kind = 2 THEN lo ELSE 0 END AS lo", "CASE WHEN kind = 2 THEN 1 ELSE 0 END AS lo"
    )
    assert believing != views
    assert any("lacks" in violation for violation in judge(drawn(1), believing))


def test_a_view_that_believes_a_client_about_others_is_found_out() -> None:
    views = VIEWS_FILE.read_text()
    believing = views.replace("said.gateway = crossed.gateway AND said.route = crossed.route", "TRUE")
    assert believing != views
    assert any("a lie" in violation for violation in judge(drawn(1), believing))
