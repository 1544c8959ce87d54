"""Asks the gateway of this machine whether it is healthy: exit code 0 if it is, or if there is no `[metrics]` to ask.

usage: healthy.py [CONFIGURATION]

It needs none of the gateway's libraries, so that it also asks while these are being replaced.
"""

import http.client
import sys
import tomllib
from pathlib import Path

CONFIGURATION = Path("/etc/holdfast/gateway.toml")
PORT = 9883  # the default of metrics.port
TIMEOUT_S = 5.0
SAID_BYTES = 2000


def trouble(configuration: Path) -> str:
    """Returns what is wrong, in one line; "" if nothing is, or if the gateway serves no health."""
    try:
        metrics = tomllib.loads(configuration.read_text(encoding="utf-8")).get("metrics")
    except (OSError, ValueError) as error:
        return f"{configuration}: {error}"
    if not isinstance(metrics, dict) or metrics.get("port", PORT) == 0:  # a free port is not in the file
        return ""
    place = f"127.0.0.1:{metrics.get('port', PORT)}"
    connection = http.client.HTTPConnection(place, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        said = answer.read(SAID_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"http://{place}/healthz does not answer: {error}"
    finally:
        connection.close()
    return "" if answer.status == http.client.OK else "; ".join(said.split("\n")).strip("; ")


def main() -> None:
    said = trouble(Path(sys.argv[1]) if len(sys.argv) > 1 else CONFIGURATION)
    print("".join(letter if letter.isprintable() else "?" for letter in said) or "healthy")
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
