"""QoS 2 flows of earlier connections, which go on over this one [MQTT-4.4.0-1]."""

from gateway.delivery.source import Source
from gateway.delivery.window import Window
from gateway.store import Grant, drops, qos2


def release_again(window: Window, flow: qos2.Flow) -> None:
    """Sends a PUBREL; another end that has forgotten the session has the message, and needs none."""
    if window.session_present:
        window.protocol.pubrel(flow.packet_identifier)
    else:
        window.outgoing.complete([flow.packet_identifier])


async def send_again_up_to(window: Window, source: Source, position: int) -> None:
    """Sends the flows of a source again that are due before the message at a position."""
    while source.again and source.again[-1].position <= position:
        await send_again(window, source.again.pop())


async def send_again(window: Window, flow: qos2.Flow) -> None:
    """Sends the PUBLISH of a flow again, unless the client has answered it meanwhile. Raises sqlite3.Error."""
    await window.wait_for_room()
    message = await window.message_of(flow) if _is_unanswered(window, flow) else None
    if not _is_unanswered(window, flow):
        return
    if message is not None and window.may_receive(message.topic):
        grant = Grant(min(2, window.protocol.maximum_qos_peer), flow.retain, flow.identifiers)
        window.publish_once(message, grant, flow.packet_identifier, dup=True)
        if grant.qos == 1:  # another server takes no QoS 2: its PUBACK ends the flow
            window.await_pubacks([flow.packet_identifier], window.outgoing.complete)
        return
    # A client that has received the message may have it; otherwise the identifier has no meaning for it.
    release_again(window, flow)
    if message is not None:
        window.drop(drops.FILTERED, message)
        window.outgoing.pass_over(flow)  # noted with the range, so that this is told once


def _is_unanswered(window: Window, flow: qos2.Flow) -> bool:
    """Whether the client has not sent the PUBREC of a flow: some do so before its PUBLISH comes again."""
    return flow.state != qos2.RELEASED and window.protocol.is_expected(flow.packet_identifier)
