"""Where everything belongs on an ESP32's flash, by its own partition table."""

import pytest
from esp_idf_defs.partitions import PartitionTable

from device.config import Config
from tools.cli.board.errors import Refused
from tools.cli.board.esp.layout import choose_layout
from tools.cli.board.esp.loader import Chip
from tools.cli.device.partitions import add_store
from tools.lab.sim.whole.firmware_file import TABLE


def test_another_label_for_the_store_is_refused_with_what_to_do() -> None:
    flash = {"path": "elsewhere"}
    config = Config(
        {"client_id": "a", "topic": "t", "interval_ms": 1, "sensors": [], "port": {"host": "b"}, "flash": flash}
    )
    table = add_store(PartitionTable.from_csv(TABLE), 256 * 1024)
    with pytest.raises(Refused, match=r"flash\.path is elsewhere, .* partition holdfast .* --micropython"):
        choose_layout(Chip("ESP32", 4 << 20), None, table, config)
