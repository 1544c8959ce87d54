"""The states of a device towards its broker: of the connection, of what the device knows about the broker's session, of
the probe of that session, and of each message.

The **connection to the broker**, which `device.mqtt.Session` keeps open:

    WAITING --it is time, the network is up--> OPENING --Up--> CONNECTING --CONNACK--> ATTACHED
       ^                                                           |
       |                                                           +--CONNACK, in doubt--> PROBING --UNSUBACK--> WAITING
       +-- from every other state: Down, Closed, the network is lost, the store has no room for a note

    state       the port  the MQTT connection                when the timer expires
    WAITING     closed    none                               the next attempt begins; after PROBING at once
    OPENING     opens     none                               logs that the broker does not answer
    CONNECTING  is open   has sent CONNECT                   logs the same
    PROBING     is open   asks which session the broker has  logs the same, and goes to WAITING
    ATTACHED    is open   is lent to the publisher           no timer

What the device knows about the broker's **session**. A CONNECT may make a new session, and the CONNACK that says so may
be lost. So the device counts CONNECTs since it last learnt, durably, which session the broker has:

    SETTLED --CONNECT--> BEGUN --CONNECT--> DOUBTFUL
       ^                  |                    |
       +-- what the CONNACK said is in flash --+

If a CONNACK with Session Present comes in DOUBTFUL, the session may be a new one, which knows none of the messages that
the device is about to release. `device.mqtt.session_probe` finds out, if the broker has granted its marks.

The **probe**, `device.mqtt.session_probe.SessionProbe`, asks in PROBING:

    IDLE --SUBSCRIBE with the marks--> SUBSCRIBING --SUBACK--> IDLE
    IDLE --UNSUBSCRIBE--> ASKING --UNSUBACK: no subscription existed, MARKS times--> IDLE with the verdict OTHER
                          ASKING --UNSUBACK of success--> IDLE with the verdict RESUMED

A connection that ends in SUBSCRIBING or ASKING counts as a failure; after some failures the device does without marks.

A **message** of the store. The states in capitals are in flash; after a restart, `sent` and `owed` are STORED again.

    STORED --PUBLISH--> sent --PUBACK--> acknowledged
                        sent --PUBREC--> owed --room for a note--> RECEIVED --PUBREL, PUBCOMP--> acknowledged
                        sent --a refusal--> STORED, and sent after a pause, or set aside: see `device.mqtt.refusals`
    RECEIVED --the broker has lost the session--> DISOWNED --PUBLISH without DUP--> sent
                                                  or acknowledged with a gap, if the configuration says not to resend

    state     is kept in
    STORED    the log
    sent      `Publisher._on_the_way`
    owed      `_on_the_way` and `Custody.owed`: PUBREL is not sent until flash has the PUBREC
    RECEIVED  the log's PUBRECs, and `_on_the_way` after its PUBREL
    DISOWNED  the log's PUBRECs and `_disowned`

What the device sends first over a connection depends on the broker's session:

    NEW       the session is new: RECEIVED messages become DISOWNED; every message is sent without DUP
    RESUMED   PUBREL for RECEIVED messages, then PUBLISH, with DUP for messages that may have been sent before
    IN_DOUBT  only PUBREL for RECEIVED messages; RESUMED when all are answered. A message whose packet identifier the
              broker does not know becomes DISOWNED; if only its PUBCOMP was lost, the broker gets it a second time
    OTHER     a session is present, but not the one that the device knows: RECEIVED messages become DISOWNED, then as
              RESUMED
"""

WAITING, OPENING, CONNECTING, PROBING, ATTACHED = range(5)
SETTLED, BEGUN, DOUBTFUL = range(3)
IDLE, SUBSCRIBING, ASKING = range(3)
NEW, RESUMED, IN_DOUBT, OTHER = range(4)
