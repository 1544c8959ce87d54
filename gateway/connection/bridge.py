"""Bridges of mosquitto that connect over MQTT 5."""

import logging

from gateway.log_fields import about
from wire.codec import MQTT_5
from wire.codec.connect import FOR_EVER_S, Connect
from wire.properties import SESSION_EXPIRY_INTERVAL

logger = logging.getLogger(__name__)


def keep_session(packet: Connect, client_id: str) -> None:
    """Has the session of a bridge of mosquitto kept, if the bridge takes for granted that it is.

    With ``cleansession false`` and ``mqttv50`` mosquitto 2.0 connects without Clean Start and without a Session Expiry
    Interval, and 2.1 does so by default. By the standard such a session ends with each connection, and what is
    published until the next one is lost to the bridge. A server may use another interval than the client asked for, and
    says so in CONNACK [section 3.2.2.3.2]. A bridge over MQTT 5 is recognised by the topic of its will.

    Args:
        packet: the CONNECT of a client that has logged in; it asks for a session without end from now on.
        client_id: the client's identifier.
    """
    if packet.protocol_level != MQTT_5 or packet.clean_start or packet.session_expiry_s or packet.will is None:
        return
    if packet.will.topic != f"$SYS/broker/connection/{client_id}/state":
        return
    packet.properties[SESSION_EXPIRY_INTERVAL] = FOR_EVER_S
    logger.info(
        "a bridge of mosquitto asks for no session over MQTT 5, and its session is kept: "
        "`bridge_protocol_version mqttv311` asks for one",
        extra=about(client=client_id),
    )
