"""An identity that is used again: another message under it is set aside, and the tables do not say 100 %."""

from cloud import OpenTables
from tests.cloud.engine import open_duckdb
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row
from tools.cli.report.figures import read_figures
from tools.cli.report.verdict import tell


def test_other_messages_under_known_identities_are_set_aside_and_completeness_shows_them(lake: Lake) -> None:
    """A device's flash was restored from a copy."""
    first = [row(seq) for seq in range(1, 6)]
    again = [row(1), row(2, content=b"another"), row(3)._replace(topic="other"), row(6)]
    repeated = [again[1], again[2], row(3)]
    for landed in (first, again, repeated):
        land(lake.landing, landed, boot=1 + len(list(lake.landing.glob("*.json"))))
        lake.ingest()
    lake.check([*first, *again, *repeated])
    aside = [(one["kind"], one["seq"], one["topic"], one["payload"]) for one in lake.rows("quarantine")]
    assert sorted(aside) == [
        ("conflict", 2, "telemetry/garage", b"another"),
        ("conflict", 3, "other", row(3).payload),
    ]
    query = "SELECT arrived, missing, conflicts, share FROM completeness"
    assert open_duckdb(lake.folder).sql(query).fetchall() == [(6, 0, 2, 6 / 8)]
    query = "SELECT device, sum(expected), sum(arrived), sum(conflicts) FROM completeness_by_hour GROUP BY device"
    assert open_duckdb(lake.folder).sql(query).fetchall() == [("garage", 8, 6, 2)]
    with OpenTables(lake.folder) as tables:
        figures = read_figures(tables)
    assert tell(figures.verdict).kind == "missing"
    assert figures.heat_map is not None
    assert sum(cell.expected - cell.arrived for cell in figures.heat_map.rows["garage"].values()) == 2
