"""MQTT 3.1.1 and 5.0 and the serial link, without IO and without a clock.

Other folders import only from these modules; a board loads only what it uses. `wire.codec.packets` and
`wire.bulk` are for CPython: they load everything.

    wire.codec                      protocol levels, the base of all packets
    wire.codec.packets              all packets, `encode`, `Decoder`
    wire.codec.connect              Connect, Will
    wire.codec.decoder              PacketDecoder, the packets that a client reads
    wire.codec.requests             the packets that a server reads, and its limits
    wire.codec.subscribe            Subscribe, Unsubscribe and their options
    wire.connection                 Connection: the base class of both ends
    wire.connection.authentication  the client's part of an enhanced authentication
    wire.connection.client          ClientConnection
    wire.connection.server          ServerConnection
    wire.connection.states          the state tables of connections and messages
    wire.bulk.batch_columns         numbers and columns of numbers as bytes
    wire.bulk.batch_encoder         ColumnBatchEncoder: gathers messages for a column batch
    wire.bulk.column_batch          many messages in the payload of one PUBLISH, as columns
    wire.bulk.content_digest        a short digest of topic and payload
    wire.bulk.connection            both ends, with many PUBLISH packets at once
    wire.bulk.property_block        the properties of a PUBLISH as bytes
    wire.bulk.publish_run           many PUBLISH packets from columns
    wire.bulk.publishes             many PUBLISH packets in one piece
    wire.bulk.reader                reads many packets at once
    wire.bulk.websocket_frames      the frames of WebSocket
    wire.link                       Link: the serial link
    wire.link.frames                the frames of the serial link
    wire.backoff                    waits before the next attempt
    wire.errors                     WireError and its subclasses, Closed
    wire.hops                       the gateways that have handed a message on
    wire.identity                   a message's identity and provenance
    wire.multicast                  the keys and the layout of multicast datagrams
    wire.multicast.receiver         MulticastReceiver: which datagrams count
    wire.multicast.sender           MulticastSender: messages joined to datagrams
    wire.packet_types               numbers of the control packets
    wire.primitives                 integers, strings and binary fields
    wire.properties                 MQTT 5's properties
    wire.receipt                    what the tables have settled, told to each hop of a message's way
    wire.reserved                   the topics of what gateways tell each other, and how a stream is named
    wire.reasons                    MQTT 5's reason codes
    wire.route_numbers              the numbers that a route gives messages, and its statements of them
    wire.runs                       runs of consecutive numbers
    wire.time_offer                 the time that a gateway offers
    wire.topics                     topic names and filters
"""
