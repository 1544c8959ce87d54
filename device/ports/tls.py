"""An encrypted TCP connection to a server whose certificate is checked.

MicroPython does the handshake's steps within reads and writes, so the device never waits for the network. But each
signature of the handshake takes the processor for some hundred milliseconds to seconds on a microcontroller.
"""

import select

import tls

from device.ports.tcp import Tcp

PIECE_BYTES = 512
COMPUTE_MS = 30_000  # the longest that a step of the handshake may compute
FATAL_ALERT = -0x7780  # MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE
LINE_ENDED = -32, -104, 32, 104  # EPIPE, ECONNRESET: the line ended before the server's alert was read


class Tls(Tcp):
    """A port (see `device.ports`).

    Args:
        poller, watchdog: see `Tcp`.
        server_name: the name that the server's certificate must have.
        ca: the file of the authority's certificate, DER or PEM, that has signed the server's certificate.
        certificate, key: the files of the device's own certificate and its key; None if the server asks for none.

    Raises OSError if a file cannot be read, ValueError if it has no certificate or key.
    """

    def __init__(
        self,
        address: tuple,
        poller,
        watchdog,
        server_name: str,
        ca: str,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(address[0], address[1], poller, watchdog)
        self._server_name = server_name
        self._context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
        self._context.verify_mode = tls.CERT_REQUIRED  # type: ignore[attr-defined, unused-ignore]  # not in the stubs
        self._context.load_verify_locations(_read(ca))
        if certificate is not None:
            assert key is not None
            self._context.load_cert_chain(_read(certificate), _read(key))
        # The socket, once it is connected.
        self._secured: tls.SSLSocket | None = None  # type: ignore[name-defined, unused-ignore]
        self._piece = b""  # bytes of a write that did not end: TLS needs the same bytes again
        self._is_shaken = False  # whether the handshake is over: bytes of the application have come

    def close(self) -> None:
        super().close()
        self._secured = None
        self._piece = b""
        self._is_shaken = False

    def advance(self, ready: int, now_ms: int) -> None:
        if self._is_shaken:
            super().advance(ready, now_ms)
            return
        self._watchdog.lengthen(COMPUTE_MS)
        try:
            super().advance(ready, now_ms)
        finally:
            self._watchdog.shorten()

    def _finish_connecting(self) -> None:
        assert self._socket is not None
        self._poller.unregister(self._socket)
        try:
            self._socket = self._secured = self._context.wrap_socket(
                self._socket, server_hostname=self._server_name, do_handshake_on_connect=False
            )
        except (OSError, ValueError) as error:
            self._end(self._why(error))
            return
        self._poller.register(self._socket, select.POLLIN | select.POLLOUT)
        super()._finish_connecting()

    def _receive(self):
        assert self._secured is not None
        data = self._secured.read(PIECE_BYTES)
        self._is_shaken = self._is_shaken or bool(data)
        return data

    def _transmit(self) -> int:
        assert self._secured is not None
        self._piece = self._piece or self._unsent[:PIECE_BYTES]
        sent = self._secured.write(self._piece)
        if sent is None:
            return 0
        self._piece = self._piece[sent:]
        return sent

    def _why(self, error: Exception) -> str:
        code = error.args[0] if error.args else None
        if code == FATAL_ALERT or (code in LINE_ENDED and not self._is_shaken):
            return "TLS: the server refuses the handshake; does it want another client certificate?"
        return f"TLS: {str(error).strip()}"


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
