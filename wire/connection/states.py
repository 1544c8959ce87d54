"""The state tables of MQTT: which packet may come when, and what follows. An absent pair is a protocol error.

A **connection** is in one of four states. FROM_CLIENT and FROM_SERVER are the same tables for both ends: what a client
may send is what a server may receive.

    AWAIT_CONNECT --CONNECT--> AWAIT_CONNACK --CONNACK--> CONNECTED --DISCONNECT or an error--> CLOSED

A **message** that we send is known by its packet identifier until its flow ends (section 4.3); OUTGOING names what it
waits for. The peer's RECEIVED packet moves it, and at AWAIT_STORE our own side does: PUBREL goes out once whoever
keeps the message has noted its PUBREC durably.

    QoS 1: AWAIT_PUBACK --PUBACK--> done
    QoS 2: AWAIT_PUBREC --PUBREC--> AWAIT_STORE --our PUBREL--> AWAIT_PUBCOMP --PUBCOMP--> done

INCOMING is the other side of it. Where it waits for us (STORE, RELEASE) nothing is acknowledged until we are told to.

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

# {state: {received packet's type: next state}}; AWAIT_ANSWER is a SUBSCRIBE or UNSUBSCRIBE
OUTGOING: dict = {
    AWAIT_ANSWER: {},
    AWAIT_PUBACK: {PUBACK: DONE},
    AWAIT_PUBREC: {PUBREC: AWAIT_STORE},
    AWAIT_STORE: {PUBREC: AWAIT_STORE},
    AWAIT_PUBCOMP: {PUBREC: AWAIT_PUBCOMP, PUBCOMP: DONE},
}

STORE_QOS_1, STORE_QOS_2, AWAIT_PUBREL, RELEASE = range(1, 5)

# {state: {packet's type, received or ours: next state}}
INCOMING: dict = {
    STORE_QOS_1: {PUBACK: DONE},
    STORE_QOS_2: {PUBREC: AWAIT_PUBREL},
    AWAIT_PUBREL: {PUBREL: RELEASE},
    RELEASE: {PUBREL: RELEASE, PUBCOMP: DONE},
}
