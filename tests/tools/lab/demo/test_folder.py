"""The demo's own folder: the results of a run stay until those of the next run replace them."""

from pathlib import Path

import pytest
import typer

from tools.cli.paths import demo_directory
from tools.lab.demo.folder import Place, demo_place


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run_once(text: str) -> None:
    with demo_place(None) as place:
        leave_results(place, text)


def leave_results(place: Place, text: str) -> None:
    (place.run / "gateway.log").write_text(text)
    (place.run / "tables" / "_checkpoint").mkdir(parents=True)
    (place.run / "tables" / "rows").write_text(text)
    (place.run / "chart.png").write_text(text)


def break_down(text: str) -> None:
    with demo_place(None) as place:
        leave_results(place, text)
        raise RuntimeError


def results() -> dict[str, str]:
    folder = demo_directory()
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_tables_of_the_run_before_are_there_until_the_next_ones_are() -> None:
    run_once("first")
    with demo_place(None) as place:
        assert list(place.run.iterdir()) == []
        assert results() == {"tables/rows": "first", "chart.png": "first"}
        leave_results(place, "second")
        assert results()["tables/rows"] == "first"
    assert results() == {"tables/rows": "second", "chart.png": "second"}
    assert not (demo_directory() / "tables" / "_checkpoint").exists()


def test_run_that_breaks_down_leaves_its_files_and_the_tables_of_the_one_before() -> None:
    run_once("first")
    with pytest.raises(RuntimeError):
        break_down("second")
    assert results()["tables/rows"] == "first"
    assert results()["run/gateway.log"] == "second"
    with demo_place(None) as place:
        assert list(place.run.iterdir()) == []
        leave_results(place, "third")


def test_kill_while_the_tables_are_replaced_loses_none() -> None:
    run_once("first")
    folder = demo_directory()
    (folder / "tables").rename(folder / "tables.former")
    with demo_place(None) as place:
        assert results()["tables/rows"] == "first"
        leave_results(place, "second")
    assert results() == {"tables/rows": "second", "chart.png": "second"}


def test_second_demo_at_the_same_time_is_refused() -> None:
    with demo_place(None) as place:
        with pytest.raises(typer.Exit), demo_place(None):
            pass
        leave_results(place, "first")
    assert results()["tables/rows"] == "first"
