"""How the first reading is awaited: with the device's own login and files, which boards have in DER."""

import base64
import json
import ssl
from pathlib import Path

from device.config import load
from tools.cli.board.login import device_gateway
from tools.lab.testing.certificates import Authority


def test_files_in_der_log_in_as_the_device_does(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server("garage-1")
    for path, name in ((authority.path, "ca.der"), (certificate, "own.der")):
        (tmp_path / name).write_bytes(ssl.PEM_cert_to_DER_cert(path.read_text()))
    body = "".join(line for line in key.read_text().splitlines() if not line.startswith("-----"))
    (tmp_path / "key.der").write_bytes(base64.b64decode(body))
    (tmp_path / "key.der").chmod(0o600)
    port = {"kind": "tls", "host": "barn", "ca": "ca.der", "certificate": "own.der", "key": "key.der"}
    keys = {"client_id": "garage-1", "topic": "t", "port": port, "flash": {"path": "holdfast"}, "interval_ms": 1000}
    path = tmp_path / "device.json"
    path.write_text(json.dumps(keys | {"sensors": []}))
    found = device_gateway(path, load(str(path)))
    assert found is not None
    server, login = found
    assert str(server) == "mqtts://barn:8883"
    context = login.context(server)
    assert context is not None
    assert len(context.get_ca_certs()) == 1


def test_gateway_over_a_serial_line_is_not_reached_by_a_network(tmp_path: Path) -> None:
    keys = {"client_id": "g", "topic": "t", "port": {"kind": "uart", "path": "1:17:16"}, "flash": {"path": "holdfast"}}
    path = tmp_path / "device.json"
    path.write_text(json.dumps(keys | {"interval_ms": 1000, "sensors": []}))
    assert device_gateway(path, load(str(path))) is None
