"""``holdfast multicast listen``: the messages of a multicast group, and what was lost."""

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from host.credentials import Credentials
from host.errors import ConfigError
from host.server import Server, parse_server
from tools.cli.client import Refused, connected
from tools.cli.columns import printable
from tools.cli.failure import OutputFailed, fail, failing_on
from tools.cli.multicast.group_socket import open_group_socket
from wire.backoff import Backoff
from wire.codec.packets import Publish, Suback
from wire.errors import WireError
from wire.multicast import DATAGRAM_MAX, MULTICAST_PROPERTY, MULTICAST_TOPIC, decode_key
from wire.multicast.receiver import MulticastReceiver
from wire.properties import REASON_STRING, USER_PROPERTY
from wire.reasons import UNSPECIFIED_ERROR, describe
from wire.topics import check_topic_filter, matches

COMMAND = "multicast listen"
DATAGRAMS_AT_ONCE = 64  # between two turns of the event loop
SHORTEST_WAIT_MS, LONGEST_WAIT_MS = 200, 30_000  # before the next attempt to connect
SILENCE_S = 5.0  # the gateway sends a heartbeat after each second without a datagram


class NoKeyError(Exception):
    """The gateway gives no key; the text says why."""


@dataclass(frozen=True)
class _Settings:
    server: Server
    credentials: Credentials
    group: str
    topic_filters: tuple[str, ...]
    interface: str | None
    as_json: bool


def listen(
    broker: Annotated[str, typer.Option(help="The gateway, mqtts://HOST or mqtts://HOST:PORT.")],
    topic_filter: Annotated[
        list[str], typer.Option("--filter", metavar="FILTER", help="What to print; may be repeated.")
    ],
    group: Annotated[
        str, typer.Option(metavar="NAME", help="The multicast group.", show_default="the first that has the filters")
    ] = "",
    interface: Annotated[str | None, typer.Option(help="The network interface on which the datagrams come.")] = None,
    user: Annotated[str | None, typer.Option(help="The user name.")] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="A file with the password, which other users can neither read nor change.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="The authorities by which the gateway is known, in PEM.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="The receiver's own certificate, in PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="Its key, in PEM.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON objects: one a message, one at the end.")] = False,
) -> None:
    """Receive a multicast group of a gateway until SIGTERM or Ctrl-C: print its messages, and at the end what was lost.

    The keys come over TLS. If that connection ends, the messages go on until the next key, and it is opened again.
    """
    try:
        server = parse_server(broker, ("mqtts",))
    except ValueError as error:
        fail(COMMAND, f"--broker: {error}; a key comes over TLS alone")
    for one in topic_filter:
        try:
            check_topic_filter(one)
        except WireError as error:
            fail(COMMAND, f"--filter: {error}")
    credentials = Credentials(user, password_file, ca, certificate, key)
    with failing_on(ConfigError, command=COMMAND):
        credentials.check(server)
    settings = _Settings(server, credentials, group, tuple(topic_filter), interface, as_json)
    with failing_on(NoKeyError, Refused, ConfigError, OSError, command=COMMAND, exit_code=1):
        asyncio.run(_Listener(settings).run())


class _Listener:
    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self._receiver = MulticastReceiver()
        self._place: tuple[str, int] | None = None
        self._socket: socket.socket | None = None
        self._line: asyncio.Task[None]

    async def run(self) -> None:
        """Raises NoKeyError, and OSError if the gateway cannot be reached at first."""
        loop = asyncio.get_running_loop()
        self._line = loop.create_task(self._stay_connected())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._line.cancel)
        watching = loop.create_task(self._rejoin_when_silent())
        try:
            await self._line
        except asyncio.CancelledError:
            pass
        finally:
            watching.cancel()
            self._leave()
        self._print_losses()

    async def _stay_connected(self) -> None:
        backoff = Backoff(SHORTEST_WAIT_MS, LONGEST_WAIT_MS)
        while True:
            try:
                await self._serve(backoff.reset)
            except (OSError, NoKeyError, Refused, ConfigError) as error:
                if self._place is None or isinstance(error, ssl.SSLCertVerificationError):
                    raise
                _tell(f"{printable(str(error))}; connecting again")
            await asyncio.sleep(backoff.next_wait_ms() / 1000)

    async def _serve(self, subscribed: Callable[[], None]) -> None:
        """Serves one connection. Raises OSError when it ends, ConfigError, Refused and NoKeyError."""
        settings = self._settings
        async with connected(settings.server, settings.credentials, "listen") as client:
            filters = [(one, 0) for one in settings.topic_filters]
            client.protocol.subscribe(filters, {USER_PROPERTY: [(MULTICAST_PROPERTY, settings.group)]})
            while True:
                match await client.event():
                    case Suback() as answer:
                        self._take_keys(answer)
                        subscribed()
                    case Publish() as message if message.topic.startswith(MULTICAST_TOPIC):
                        self._take_key(message.payload.decode(errors="replace"))
                    case Publish() as message:
                        self._print(message, "tls")

    def _take_keys(self, packet: Suback) -> None:
        keys = [value for name, value in packet.properties.get(USER_PROPERTY, ()) if name == MULTICAST_PROPERTY]
        if max(packet.reason_codes) >= UNSPECIFIED_ERROR:
            code = describe(max(packet.reason_codes))
            raise NoKeyError(packet.properties.get(REASON_STRING) or f"the gateway refuses the subscription: {code}")
        if not keys:
            raise NoKeyError("the broker gives no key: it knows nothing of hf-multicast")
        for text in keys:
            self._take_key(text)

    def _take_key(self, text: str) -> None:
        try:
            handed = decode_key(text)
        except ValueError as error:
            raise NoKeyError(str(error)) from None
        self._receiver.take_key(handed)
        if self._place != (handed.address, handed.port):
            self._leave()
            self._join(handed.address, handed.port)
            _tell(f"listening to {handed.address} port {handed.port}")

    def _join(self, address: str, port: int) -> None:
        """Begins to receive what comes to a group. Raises OSError."""
        self._socket = open_group_socket(address, port, self._settings.interface)
        asyncio.get_running_loop().add_reader(self._socket, self._take_datagrams, self._socket)
        self._place = address, port

    def _leave(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._take_datagrams(self._socket)
            self._socket.close()
            self._socket = None

    async def _rejoin_when_silent(self) -> None:
        """Joins the group again after each silence, for ever: an interface that goes takes the membership along."""
        seen, is_silent = -1, False  # the first look is too early to tell
        while True:
            await asyncio.sleep(SILENCE_S)
            if self._place is None:
                continue
            was_silent, is_silent = is_silent, self._receiver.datagrams == seen
            seen = self._receiver.datagrams
            if is_silent and not was_silent:
                _tell(f"no datagram for {SILENCE_S:g} s; joining the group again")
            if was_silent and not is_silent:
                _tell("datagrams come again")
            if is_silent:
                self._leave()
                with contextlib.suppress(OSError):  # the interface may not be back
                    self._join(*self._place)

    def _take_datagrams(self, opened: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(DATAGRAMS_AT_ONCE):
                for packet in self._receiver.receive(opened.recv(DATAGRAM_MAX + 1)):
                    if any(matches(one, packet.topic) for one in self._settings.topic_filters):
                        self._print(packet, "multicast")

    def _print(self, packet: Publish, over: str) -> None:
        payload = bytes(packet.payload)
        try:
            text: str | None = payload.decode()
        except UnicodeDecodeError:
            text = None
        if not self._settings.as_json:
            shown = payload.hex() if text is None else text
            self._write(f"{printable(packet.topic)} {printable(shown)}")
            return
        content = {"payload": text} if text is not None else {"payload_base64": base64.b64encode(payload).decode()}
        self._write(json.dumps({"topic": packet.topic, **content, "retain": packet.retain, "over": over}))

    def _write(self, text: str) -> None:
        """Prints a line; ends when the program that reads them has ended."""
        try:
            print(text, flush=True)
        except OutputFailed as error:
            if error.is_fault:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again at its end
            self._line.cancel()

    def _print_losses(self) -> None:
        one = self._receiver
        refused = {reason: count for reason, count in one.refused.items() if count}
        if self._settings.as_json:
            lost = {"lost_messages": one.lost_messages, "lost_datagrams": one.lost_datagrams}
            self._write(json.dumps({"messages": one.messages, "datagrams": one.datagrams, **lost, "refused": refused}))
            return
        said = ", ".join(f"{reason} {count}" for reason, count in refused.items()) or "none"
        print(
            f"{one.messages} messages in {one.datagrams} datagrams; lost: {one.lost_messages} messages, "
            f"{one.lost_datagrams} datagrams; datagrams refused: {said}",
            file=sys.stderr,
        )


def _tell(text: str) -> None:
    print(f"holdfast {COMMAND}: {text}", file=sys.stderr, flush=True)
