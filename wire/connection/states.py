"""The state tables of MQTT: for each state, the packets that are allowed and the state that follows each.

A packet that the table does not have for a state is a protocol error.

A **connection** is in one of four states. FROM_CLIENT has the packets that a client may send, FROM_SERVER the packets
that a server may send. Each end uses one table to check its own packets and the other to check the peer's.

    AWAIT_CONNECT --CONNECT--> AWAIT_CONNACK --CONNACK--> CONNECTED --DISCONNECT or an error--> CLOSED

A **message** that our side sends has a packet identifier until its flow ends (section 4.3), and a state of the table
OUTGOING. A packet of the peer moves it to the next state. Only AWAIT_STORE ends with a packet of ours: our side sends
PUBREL when the application has stored the PUBREC.

    QoS 1: AWAIT_PUBACK --PUBACK--> done
    QoS 2: AWAIT_PUBREC --PUBREC--> AWAIT_STORE --our PUBREL--> AWAIT_PUBCOMP --PUBCOMP--> done

A message that the peer sends has a state of the table INCOMING. In the states STORE_QOS_1, STORE_QOS_2 and RELEASE our
side sends no acknowledgement until the application calls for it.

    QoS 1: STORE_QOS_1 --our PUBACK--> done
    QoS 2: STORE_QOS_2 --our PUBREC--> AWAIT_PUBREL --PUBREL--> RELEASE --our PUBCOMP--> done
"""

from wire.packet_types import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)

AWAIT_CONNECT, AWAIT_CONNACK, CONNECTED, CLOSED = range(4)

# {state: {packet type: next state}}
FROM_CLIENT: dict = {
    AWAIT_CONNECT: {CONNECT: AWAIT_CONNACK},
    AWAIT_CONNACK: {AUTH: AWAIT_CONNACK, DISCONNECT: CLOSED},
    CONNECTED: {
        PUBLISH: CONNECTED,
        PUBACK: CONNECTED,
        PUBREC: CONNECTED,
        PUBREL: CONNECTED,
        PUBCOMP: CONNECTED,
        SUBSCRIBE: CONNECTED,
        UNSUBSCRIBE: CONNECTED,
        PINGREQ: CONNECTED,
        AUTH: CONNECTED,
        DISCONNECT: CLOSED,
    },
    CLOSED: {},
}
FROM_SERVER: dict = {
    AWAIT_CONNECT: {},
    AWAIT_CONNACK: {CONNACK: CONNECTED, AUTH: AWAIT_CONNACK},
    CONNECTED: {
        PUBLISH: CONNECTED,
        PUBACK: CONNECTED,
        PUBREC: CONNECTED,
        PUBREL: CONNECTED,
        PUBCOMP: CONNECTED,
        SUBACK: CONNECTED,
        UNSUBACK: CONNECTED,
        PINGRESP: CONNECTED,
        AUTH: CONNECTED,
        DISCONNECT: CLOSED,
    },
    CLOSED: {},
}

DONE, AWAIT_ANSWER, AWAIT_PUBACK, AWAIT_PUBREC, AWAIT_STORE, AWAIT_PUBCOMP = range(6)

# {state << 4 | type of the received packet: next state}; AWAIT_ANSWER is the state of a SUBSCRIBE or UNSUBSCRIBE
OUTGOING: dict = {
    AWAIT_PUBACK << 4 | PUBACK: DONE,
    AWAIT_PUBREC << 4 | PUBREC: AWAIT_STORE,
    AWAIT_STORE << 4 | PUBREC: AWAIT_STORE,
    AWAIT_PUBCOMP << 4 | PUBREC: AWAIT_PUBCOMP,
    AWAIT_PUBCOMP << 4 | PUBCOMP: DONE,
}

STORE_QOS_1, STORE_QOS_2, AWAIT_PUBREL, RELEASE = range(1, 5)

# {state << 4 | type of the packet: next state}; PUBREL comes from the peer, the other packets from our side
INCOMING: dict = {
    STORE_QOS_1 << 4 | PUBACK: DONE,
    STORE_QOS_2 << 4 | PUBREC: AWAIT_PUBREL,
    AWAIT_PUBREL << 4 | PUBREL: RELEASE,
    RELEASE << 4 | PUBREL: RELEASE,
    RELEASE << 4 | PUBCOMP: DONE,
}
