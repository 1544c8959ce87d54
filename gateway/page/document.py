"""The status page as one HTML document: its style and its script are inside, and its policy lets no others run."""

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from string import Template

from gateway.page import LOOK
from gateway.page.names import shown

FOLDER = Path(__file__).with_name("files")
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "Holdfast",
    "X-Content-Type-Options": "nosniff",
}


class Documents:
    """Makes the page, and the page of all devices. Its files are read once."""

    def __init__(self) -> None:
        self._page = Template((FOLDER / "page.html").read_text("utf-8"))
        self._devices = Template((FOLDER / "devices.html").read_text("utf-8"))
        self._style = LOOK.read_text("utf-8") + (FOLDER / "page.css").read_text("utf-8")
        self._script = (FOLDER / "page.js").read_text("utf-8")
        self.icon = (FOLDER / "icon.svg").read_bytes()
        policy = (
            f"default-src 'none'; style-src {_hash_of(self._style)}; script-src {_hash_of(self._script)}; "
            "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self.headers = {**HEADERS, "Content-Security-Policy": policy}

    def page(self, gateway: str, at: str, version: str, sections: Mapping[str, str]) -> bytes:
        """Returns the page.

        Args:
            gateway: the gateway's name.
            at: the time of the snapshot.
            version: names the snapshot, for the events behind it.
            sections: HTML by id.
        """
        return self._page.substitute(
            sections, gateway=shown(gateway), at=at, version=version, style=self._style, script=self._script
        ).encode()

    def devices(self, gateway: str, at: str, table: str, ways: str) -> bytes:
        """Returns a page of the devices; ``ways`` leads to the other ones."""
        return self._devices.substitute(
            gateway=shown(gateway), at=at, style=self._style, table=table, ways=ways
        ).encode()


def _hash_of(text: str) -> str:
    """Returns a text's source in a policy [CSP 3, section 2.3.1]."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
