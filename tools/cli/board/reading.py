"""The wait for a board's first reading: a subscriber at the gateway, from before the board is written."""

import asyncio
import contextlib
import threading
import time
from typing import Self

from host.credentials import Credentials
from host.server import Server
from tools.cli.board.errors import Refused
from tools.cli.client import Refused as ServerRefused
from tools.cli.client import connected
from wire.codec.packets import Publish, Suback
from wire.reasons import UNSPECIFIED_ERROR, describe

CONNECT_S = 20.0
AGAIN_S = 1.0
NAME = "holdfast-flash"


class FirstReading:
    """Subscribes a device's topic in a thread of its own while it is used as a context.

    Args:
        client_id: the device's, with which the names in its readings begin.
        listens_as: the client identifier; None for any.
        patience_s: how long a login that the gateway refuses is tried again: it may not have read its files yet.

    Raises:
        Refused: on entering, if the gateway cannot be reached, or refuses the login or the subscription.
    """

    def __init__(
        self,
        server: Server,
        credentials: Credentials,
        topic: str,
        client_id: str,
        listens_as: str | None = None,
        patience_s: float = 0,
    ) -> None:
        self._server, self._credentials, self._topic = server, credentials, topic
        self._name = client_id.encode()
        self._listens_as, self._patience_s = listens_as, patience_s
        self._ready = threading.Event()
        self._came = threading.Event()
        self._since_s = float("inf")
        self._failure = ""
        self._payload = b""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="first-reading")

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(CONNECT_S + self._patience_s):
            self._failure = f"it does not answer within {CONNECT_S:g} s"
        if self._failure:
            self._end()
            raise Refused(
                f"the first reading cannot be awaited at {self._server}: {self._failure}. "
                "--no-wait flashes without it, and --user and --password-file log in as another user"
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def begin(self) -> None:
        """Readings count from now on; those before may be another device's with the same name."""
        self._since_s = time.monotonic()

    def wait(self, seconds: float) -> bytes | None:
        """Waits for a reading; returns its payload, None if none comes."""
        return self._payload if self._came.wait(seconds) else None

    def _end(self) -> None:
        def stop() -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()

        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # its loop has ended just now
                self._loop.call_soon_threadsafe(stop)
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._listen())
        self._loop.close()

    async def _listen(self) -> None:
        """Connects again when a connection ends, but not the first one after the time of patience."""
        patient_until_s = time.monotonic() + self._patience_s
        while True:
            try:
                await self._serve()
            except Exception as error:
                if not self._ready.is_set() and time.monotonic() >= patient_until_s:
                    self._failure = str(error) or type(error).__name__
                    self._ready.set()
                    return
            await asyncio.sleep(AGAIN_S)

    async def _serve(self) -> None:
        async with connected(self._server, self._credentials, NAME, None, self._listens_as) as client:
            client.protocol.subscribe([(self._topic, 0)])
            while True:
                match await client.event():
                    case Suback() as answer:
                        if max(answer.reason_codes) >= UNSPECIFIED_ERROR:
                            raise ServerRefused(
                                f"it does not let this login read {self._topic}: {describe(max(answer.reason_codes))}"
                            )
                        self._ready.set()
                    case Publish() as message:
                        self._take(message)

    def _take(self, message: Publish) -> None:
        if not message.retain and self._name in message.payload and time.monotonic() >= self._since_s:
            self._payload = bytes(message.payload)
            self._came.set()
