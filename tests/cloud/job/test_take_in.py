"""What one task does with its landing files."""

from pathlib import Path

from cloud.job.part import Part
from cloud.job.take_in import take_in
from cloud.transforms.record import RECORDS_MAX
from cloud.transforms.rows import Landed, decode
from tests.cloud.messages import land, row


def test_a_task_never_decodes_millions_of_readings_at_once(landing: Path, tmp_path: Path) -> None:
    """A reading has as few as two bytes of a payload, and takes some hundred times as much until it is in a table."""
    readings = 20_000
    content = b"[" + b"1," * (readings - 1) + b"1]"
    rows = [row(seq, content=content)._replace(content_type="application/json") for seq in range(1, 101)]
    at_once: list[int] = []

    def decoder(landed: Landed) -> Landed:
        at_once.append(readings * len(landed.messages))
        return decode(landed.add_problems(dict.fromkeys(range(len(landed.messages)), "only counted here")))

    landed = [one.of_file for one in land(landing, rows)]
    part = Part(0, 1, 1_767_225_600_000, str(landing), str(tmp_path / "tables"), landed)
    done = take_in(part, {}, decoder)
    assert (done.failure, done.undecodable) == (None, 100)
    assert max(at_once) <= 11 * RECORDS_MAX
