"""Who comes in by a listener, as far as the line under MQTT shows it."""

import asyncio
import logging
import ssl

from gateway.listeners.entrance import Guest
from gateway.listeners.tls import CertificateRefusedError, Tls
from gateway.logs import about
from gateway.port import Visitor

logger = logging.getLogger(__name__)


class Visitors:
    """Those of one listener.

    Args:
        tls: through which they come, if any.
        anonymous: whether clients without an account may come in here.
    """

    def __init__(self, tls: Tls | None, anonymous: bool) -> None:
        self._tls = tls
        self._anonymous = anonymous

    def identify(self, guest: Guest, transport: asyncio.BaseTransport) -> Visitor | None:
        """Returns who a guest is, once TLS is up; None if it has to go."""
        host = guest.peer.rpartition(":")[0].strip("[]") or guest.peer
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if self._tls is None or connection is None:
            return Visitor(host, may_be_anonymous=self._anonymous)
        try:
            user = self._tls.user_of(connection.getpeercert())
        except CertificateRefusedError as error:
            logger.warning("connection refused", extra=about(peer=guest.peer, reason=str(error)))
            return None
        cipher = (connection.cipher() or ("",))[0]
        return Visitor(host, user, self._anonymous, f"{connection.version()} {cipher}")
