"""What the gateway announces in a CONNACK, besides what the protocol core does."""

import time
from typing import Any

from gateway.auth.admission import Admitted
from gateway.connection.neighbour import answer_to
from gateway.connection.services import Services
from gateway.network.link import LINK_PROPERTY
from gateway.sessions.session import Session
from wire.codec.connect import FOR_EVER_S
from wire.hops import HOPS_PROPERTY, STORE_PROPERTY
from wire.identity import KEEP, find_wishes
from wire.properties import (
    ASSIGNED_CLIENT_IDENTIFIER,
    AUTHENTICATION_DATA,
    MAXIMUM_PACKET_SIZE,
    MAXIMUM_QOS,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY_INTERVAL,
    SHARED_SUBSCRIPTION_AVAILABLE,
    USER_PROPERTY,
)
from wire.time_offer import TIME_PROPERTY, encode_time

OFFER_FROM = 256  # bytes; a client with a smaller Maximum Packet Size is offered no time [MQTT-3.2.2-19]
NOT_IN_REAL_TIME = (MAXIMUM_QOS, RETAIN_AVAILABLE, SHARED_SUBSCRIPTION_AVAILABLE, SESSION_EXPIRY_INTERVAL)
"""The properties of a CONNACK that are 0 at a real-time listener."""


def announced(
    services: Services, admitted: Admitted, session: Session | None = None, *, is_realtime: bool
) -> dict[int, Any]:
    """Returns the properties of the CONNACK; before there is a session, all but what is for a neighbour."""
    packet, properties = admitted.packet, dict[int, Any]()
    if not packet.client_id:
        properties[ASSIGNED_CLIENT_IDENTIFIER] = admitted.client_id
    if admitted.proof is not None:
        properties[AUTHENTICATION_DATA] = admitted.proof
    limits = services.config.limits
    if is_realtime:
        properties |= dict.fromkeys(NOT_IN_REAL_TIME, 0)
    elif packet.session_expiry_s > limits.session_expiry_max_s or packet.session_expiry_s == FOR_EVER_S:
        properties[SESSION_EXPIRY_INTERVAL] = limits.session_expiry_max_s
    longest_s = limits.keep_alive_s
    if longest_s and not 0 < packet.keep_alive_s <= longest_s:
        properties[SERVER_KEEP_ALIVE] = longest_s
    if packet.properties.get(MAXIMUM_PACKET_SIZE, OFFER_FROM) >= OFFER_FROM:
        now = encode_time(int(time.time() * 1000))
        properties[USER_PROPERTY] = [(TIME_PROPERTY, now), (STORE_PROPERTY, services.log.hop)]
        if KEEP in find_wishes(packet.properties):  # a route
            properties[USER_PROPERTY].append((HOPS_PROPERTY, services.log.hop))
    if session is not None and session.link is not None:
        properties.setdefault(USER_PROPERTY, []).append((LINK_PROPERTY, answer_to(services.network, session)))
    return properties
