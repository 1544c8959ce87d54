"""What a server reads."""

from wire.codec.acknowledge import Puback, Pubcomp, Pubrec, Pubrel
from wire.codec.auth import Auth
from wire.codec.control import Disconnect, Pingreq
from wire.codec.publish import Publish
from wire.codec.requests import decode_connect, decode_subscribe, decode_unsubscribe
from wire.packet_types import CONNECT, SUBSCRIBE, UNSUBSCRIBE

READERS = {kind.TYPE: kind.decode for kind in (Publish, Puback, Pubrec, Pubrel, Pubcomp, Pingreq, Disconnect, Auth)}
READERS.update({CONNECT: decode_connect, SUBSCRIBE: decode_subscribe, UNSUBSCRIBE: decode_unsubscribe})
