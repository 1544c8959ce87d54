"""A gateway that runs with the files of a site, and clients with what the site gave them."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tools.cli.gateway.running import LONG_S, Watched
from tools.cli.site.given import Given
from tools.cli.site.giving import Wish
from tools.cli.site.ledger import GATEWAY
from tools.cli.site.making import make_site
from tools.cli.site.site import Site
from tools.lab.testing.ports import free_port

TLS = """[listener.tls]
certificate = "site/gateways/gw/certificate.pem"
key = "site/gateways/gw/key.pem"
"""
WITH_CERTIFICATE = TLS + 'client_ca = "site/gateway/authority.pem"\nclient_crl = "site/gateway/revoked.pem"\n'
CONFIG = 'accounts = "site/gateway/accounts"\nacl = "site/gateway/access"\n'


class SiteGateway(Watched):
    """A gateway with a port for certificates, and ``password_port`` for passwords; it reads the folder `site`."""

    def __init__(self, folder: Path) -> None:
        make_site(folder / "site", "hill")
        self.site = Site.open(folder / "site")
        self.site.give_all([Wish("gw", GATEWAY, hosts=["localhost", "127.0.0.1"])])
        self.password_port = free_port()
        second = f'[[listener]]\nkind = "tcp"\nport = {self.password_port}\n{TLS}'
        super().__init__(folder, CONFIG, WITH_CERTIFICATE + second)

    @contextmanager
    def serving(self) -> Iterator["SiteGateway"]:
        """Runs it."""
        with self.running() as process:
            self._signal, self.pid = process.signal, process.pid
            yield self

    def read_again(self) -> None:
        """Sends SIGHUP, and waits until it has read its files."""
        before = len(self.log())
        self._signal(signal.SIGHUP)
        while not any("read again" in one["event"] for one in self.log()[before:]):
            self.wait_for_event("read again")


def publish_as(given: Given, gateway: SiteGateway, topic: str = "", client_id: str = "") -> str:
    """Publishes one message with mosquitto_pub; returns its complaint, "" if the message was taken."""
    if given.has_password:
        login = ["-u", given.name, "-P", given.password.read_text().strip()]
        port = gateway.password_port
    else:
        login = ["--cert", str(given.certificate), "--key", str(given.key)]
        port = gateway.port
    command = ["mosquitto_pub", "-V", "5", "-h", "localhost", "-p", str(port), "--cafile", str(given.authority), *login]
    command += ["-i", client_id or given.name, "-t", topic or f"telemetry/{given.name}/a", "-q", "1", "-m", "hello"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert bool(done.returncode) <= bool(done.stderr)
    return done.stderr
