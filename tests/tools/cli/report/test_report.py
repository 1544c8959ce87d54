"""The report, as a browser shows it."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from cloud import ingest
from tests.cloud.messages import land, payload, row
from tests.support.browser import open_page
from tools.cli.main import make_app

HOSTILE = "<img src=x onerror=document.title='taken'>"


def report(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), ["cloud", "report", *arguments])


@pytest.fixture(scope="module")
def file(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a device that lacks messages of the second hour, one that lacks none, and one with a hostile name."""
    place = tmp_path_factory.mktemp("site")
    (place / "landing").mkdir()
    garage = [row(seq) for seq in (1, 2, 4000, 4001, 8000)]
    hostile = [row(1, HOSTILE, payload("attic", 1))]
    land(place / "landing", garage, [row(1, "cellar"), row(1, "cellar")], hostile)
    ingest(spark, place / "landing", place / "tables")
    done = report("--tables", str(place / "tables"), "--out", str(place / "report.html"))
    assert (done.exit_code, done.stdout) == (0, f"{place / 'report.html'}\n"), done.output
    return place / "report.html"


async def test_browser_shows_the_totals_and_every_part(file: Path, tmp_path: Path) -> None:
    async with open_page(file, tmp_path) as page:
        tiles = await page.evaluate("[...document.querySelectorAll('dl div')].map(one => one.innerText.split('\\n'))")
        assert dict(tiles) == {
            "devices": "3",
            "readings": "14",
            "messages arrived": "7",
            "messages missing": "7,995",
            "messages in conflict": "0",
            "in quarantine": "0",
            "duplicates removed": "1",
        }
        headings = await page.evaluate("[...document.querySelectorAll('h2')].map(one => one.innerText)")
        assert headings == ["Completeness", "Gaps", "Rates", "Latency by hop", "Devices", "What this page leaves out"]
        assert await page.evaluate("document.querySelector('.headline').innerText") == (
            "0.0 % of 8,002 messages, 2 gaps unexplained"
        )
        assert "7,995 messages are missing." in await page.evaluate("document.querySelector('.verdict').innerText")


async def test_cells_of_the_heat_map_have_the_colour_of_their_share(file: Path, tmp_path: Path) -> None:
    async with open_page(file, tmp_path) as page:
        cells = await page.evaluate(
            """[...document.querySelectorAll('.map tr')].map(row => [row.cells[0].innerText,
                [...row.querySelectorAll('td')].map(one => [one.title.split(': ').pop(),
                    getComputedStyle(one).backgroundColor, one.offsetWidth > 5 && one.offsetHeight > 5])])"""
        )
    rows = dict(cells)
    assert next(iter(rows)) == "garage"  # what lacks most comes first
    assert rows["garage"][0][0].startswith("2 of ")
    (lacking, complete) = (rows[name][0][1][4:-1].split(", ") for name in ("garage", "cellar"))
    assert int(lacking[0]) > int(lacking[1])  # more red than green
    assert int(complete[1]) > int(complete[0])
    assert all(seen for _, _, seen in rows["garage"])


async def test_gaps_rates_and_hops_are_there(file: Path, tmp_path: Path) -> None:
    async with open_page(file, tmp_path) as page:
        texts = await page.evaluate("[...document.querySelectorAll('.rows')].map(one => one.innerText)")
        heights = "[...document.querySelectorAll('rect')].map(one => one.getBoundingClientRect().height)"
        bars = await page.evaluate(heights)
    gaps, latency, devices = texts
    assert "3,998" in gaps and "3,997" in gaps
    assert "from the device to its gateway" in latency and "from the lander to the tables" in latency
    assert "garage" in devices and HOSTILE in devices
    assert bars == [128, 0, 64, 32]


async def test_page_needs_no_other_file_and_runs_nothing_that_a_device_wrote(file: Path, tmp_path: Path) -> None:
    async with open_page(file, tmp_path) as page:
        assert await page.evaluate("performance.getEntriesByType('resource').length") == 0
        assert (await page.evaluate("document.title")).startswith("Holdfast: /")
        assert await page.evaluate("document.images.length + document.scripts.length") == 0
        assert page.errors == []


async def test_one_time_of_a_wrong_clock_does_not_make_the_cells_months_wide(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "landing").mkdir()
    in_2001 = json.dumps([{"bn": "cellar:", "n": "temperature", "bt": 978_307_200, "v": 4.0}]).encode()
    land(tmp_path / "landing", [row(1), row(2)], [row(1, "cellar", in_2001)])
    ingest(spark, tmp_path / "landing", tmp_path / "tables")
    report("--tables", str(tmp_path / "tables"), "--out", str(tmp_path / "report.html"))
    async with open_page(tmp_path / "report.html", tmp_path) as page:
        text = await page.evaluate("document.body.innerText")
        left_out = await page.evaluate("document.getElementById('left-out').nextElementSibling.innerText")
        bars = await page.evaluate("document.querySelectorAll('rect').length")
    assert "1 h a cell" in text and "Readings in 1 h" in text
    assert "2001" not in text.partition("Rates")[0]
    assert bars == 1
    assert left_out.startswith("1 messages on the axes of time") and left_out.endswith("wrong: cellar")


async def test_device_with_hundreds_of_gaps_does_not_displace_others_and_the_rest_is_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "landing").mkdir()
    flood = [row(seq * 100, "flood") for seq in range(1, 251)]
    many = [row(1, f"device-{number}", payload(f"device-{number}", 1)) for number in range(249)]
    land(tmp_path / "landing", flood, [row(1), row(3)], many)
    ingest(spark, tmp_path / "landing", tmp_path / "tables")
    report("--tables", str(tmp_path / "tables"), "--out", str(tmp_path / "report.html"))
    async with open_page(tmp_path / "report.html", tmp_path) as page:
        gaps = await page.evaluate("document.querySelectorAll('.rows')[0].innerText")
        remarks = await page.evaluate(
            """['completeness', 'gaps', 'devices'].map(id =>
                document.getElementById(id).nextElementSibling.innerText.split('. ').pop())"""
        )
    assert "garage" in gaps
    assert remarks == ["51 more are left out.", "51 more are left out.", "51 more are left out."]


async def test_page_is_usable_on_a_telephone(file: Path, tmp_path: Path) -> None:
    async with open_page(file, tmp_path) as page:
        await page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
        widths = await page.evaluate(
            """[document.documentElement.scrollWidth, ...['.verdict', 'dl', 'svg', '.wide'].map(one =>
                Math.ceil(document.querySelector(one).getBoundingClientRect().right))]"""
        )
    assert max(widths) <= 390


def test_tables_without_a_message_make_a_page_that_says_so(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    ingest(spark, tmp_path / "landing", tmp_path / "tables")
    done = report("--tables", str(tmp_path / "tables"), "--out", str(tmp_path / "report.html"))
    assert done.exit_code == 0, done.output
    assert "No message is missing." in (tmp_path / "report.html").read_text()


def test_missing_tables_are_named(tmp_path: Path) -> None:
    done = report("--tables", str(tmp_path / "nowhere"), "--out", str(tmp_path / "report.html"))
    assert (done.exit_code, done.stderr) == (2, f"holdfast cloud report: there are no tables in {tmp_path}/nowhere\n")
