"""What a client reads."""

from wire.codec.acknowledge import Puback, Pubcomp, Pubrec, Pubrel
from wire.codec.connack import Connack
from wire.codec.control import Disconnect, Pingresp
from wire.codec.publish import Publish

READERS = {kind.TYPE: kind.decode for kind in (Connack, Publish, Puback, Pubrec, Pubrel, Pubcomp, Pingresp, Disconnect)}
"""Without SUBACK, UNSUBACK and AUTH, which come only to a client that asks for them."""
