"""``holdfast cloud receipts``: tells a broker what the tables hold, for each hop of a message's way."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cloud import JobRunning, NewerTables, NoTables, OlderTables, SigningKey, open_receipts
from host.credentials import Credentials
from host.errors import ConfigError
from host.server import Server, parse_server
from tools.cli.client import Refused
from tools.cli.failure import fail, failing_on
from tools.cli.tables.folders import AsJson, LandingFolder, TablesFolder, find_folders
from tools.cli.tables.publishing import publish_receipts

COMMAND = "cloud receipts"

User = Annotated[str | None, typer.Option(help="The user name at the broker.")]
PasswordFile = Annotated[
    Path | None, typer.Option(help="A file with the password, which other users can neither read nor change.")
]
Authorities = Annotated[Path | None, typer.Option(help="The authorities by which the broker is known, in PEM.")]
Certificate = Annotated[Path | None, typer.Option(help="The command's own certificate, in PEM.")]
Key = Annotated[Path | None, typer.Option(help="Its key, in PEM.")]
Signing = Annotated[Path | None, typer.Option(metavar="FILE", help="The key that signs the receipts.")]


@dataclass(frozen=True)
class Audience:
    """A broker that receipts go to, the login there, and the key that signs them, if there is one."""

    server: Server
    credentials: Credentials
    key: SigningKey | None

    def publish(self, tables: Path | str, landing: Path | str, everything: bool = False) -> "Done":
        """Publishes the receipts that the broker lacks. Raises the errors of UNPUBLISHED."""
        with open_receipts(tables, landing, self.key) as receipts:
            found = publish_receipts(receipts, self.server, self.credentials, everything)
            return Done(receipts.batch, found.receipts, found.is_first, len(receipts.unnamed))


UNPUBLISHED = (JobRunning, NewerTables, OlderTables, NoTables, ConfigError, Refused, OSError)
"""What may keep receipts from a broker."""


class Done(msgspec.Struct):
    """What was published: how many receipts of origins, up to which batch; whether the broker had none of these tables
    before; and of how many origins there can be none, as no topic can have their names."""

    batch: int
    receipts: int
    is_first: bool
    unnamed: int

    @property
    def sentence(self) -> str:
        """What was done, in one line."""
        first = "; the broker had none of these tables" if self.is_first and self.receipts else ""
        unnamed = f"; {self.unnamed} origins have names that no topic can have" if self.unnamed else ""
        return f"{self.receipts} receipts up to batch {self.batch} are with the broker{first}{unnamed}"


def find_audience(command: str, option: str, url: str, credentials: Credentials, signing_key: Path | None) -> Audience:
    """Returns the audience that the options of a command name. Ends the command if they cannot be used."""
    with failing_on(ConfigError, command=command):
        try:
            server = parse_server(url, ("mqtt", "mqtts"))
        except ValueError as error:
            fail(command, f"{option}: {error}")
        credentials.check(server)
        return Audience(server, credentials, SigningKey.read(signing_key) if signing_key else None)


def publish(
    broker: Annotated[
        str, typer.Option(help="The broker, mqtt://host:port, or mqtts:// with TLS.")
    ] = "mqtt://127.0.0.1:1883",
    landing: LandingFolder = None,
    tables: TablesFolder = None,
    user: User = None,
    password_file: PasswordFile = None,
    ca: Authorities = None,
    certificate: Certificate = None,
    key: Key = None,
    signing_key: Signing = None,
    new_signing_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Make a key that signs receipts, and publish nothing.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Publish the receipts of all origins, also what the broker has.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tell a broker what the tables hold, in retained messages: a receipt for each origin, and one for all."""
    if new_signing_key:
        with failing_on(OSError, command=COMMAND):
            made = SigningKey.create(new_signing_key)
        print(f"{new_signing_key}: a new key, for its owner alone\npublic key: {made.public.hex()}")
        return
    landed, folder = find_folders(landing, tables)
    audience = find_audience(
        COMMAND, "--broker", broker, Credentials(user, password_file, ca, certificate, key), signing_key
    )
    with failing_on(*UNPUBLISHED, command=COMMAND):
        done = audience.publish(folder, landed, everything)
    print(msgspec.json.encode(done).decode() if as_json else done.sentence)
