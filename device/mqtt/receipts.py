"""Receipts say which of the device's messages are in the tables [docs/reference/receipts.md]. A device that waits for
them keeps acknowledged messages in flash, and sends them again to a gateway that began a new store.

It sends them with their identities, so that they are counted once, and only while no other message is to be sent. It
goes through flash sector by sector, one in a turn of the device's loop. Each is noted once all of it is acknowledged,
so a power cut repeats a sector at most.

What the gateway refuses goes again after the pause of `device.mqtt.refusals`, and nothing else of its sector does. If
the gateway takes other messages, it is given up once it was refused REFUSED_MAX times. What it has no room for is not
given up.
"""

from binascii import crc32

from device.mqtt import Session
from device.mqtt.publisher import Publisher
from device.mqtt.settings import read_setting
from device.mqtt.states import IN_DOUBT
from flash_store.errors import MessageTooLarge, StoreFull
from flash_store.kept import KeepingLog
from flash_store.log import packet_identifier
from wire.codec import MQTT_5, encode_packet_identifier, frame
from wire.errors import WireError
from wire.identity import find_user_property
from wire.packet_types import CONNACK, PUBACK, PUBCOMP, PUBLISH, SUBACK, SUBSCRIBE
from wire.primitives import Reader, encode_string
from wire.properties import decode_properties
from wire.reasons import PACKET_IDENTIFIER_IN_USE, QUOTA_EXCEEDED, UNSPECIFIED_ERROR
from wire.topics import matches, parse_shared

TOPIC = "hf/receipt"  # as in `wire.receipt`, whose code is for machines with more room
RECEIPT_BYTES_MAX = 1024
BATCH_CHARACTERS_MAX = 19
SIGNATURE_CHARACTERS = 86
NUMBERS_MAX = 65  # of an epoch: HIGH, and the ends of 32 runs
STORE = "hf-store"  # as in `wire.hops`
STORES_MAX = 4  # as many as a device has brokers
KEY = "until"  # of the setting; `device.assembly` removes it with a change of the client id
NOTED_EVERY = 64  # messages that a receipt may settle before flash has it
REFUSED_MAX = 3  # as often as `device.mqtt.refusals` has a message refused before it is set aside


def topic_of(client_id: str) -> str:
    """Returns the topic name of the receipt that is about a device."""
    return TOPIC + "/" + client_id.replace("/", "%2F")  # no other character of a client id is escaped


class KeepingPublisher(Publisher):
    """Sends acknowledged messages again, from the sector `log.again` on, up to the id `_end`.

    `is_taking`: the gateway took a message over this connection. The setting has: the id up to which nothing is sent
    again, `log.landed`, `_end`, `log.again`, and `_known`: the CRC-32 of the client id under which the messages were
    made, and the stores that the device knows, the newest first.
    """

    # Only while messages are sent again the object has these attributes, which take heap.
    _end = 0
    _scan = None  # yields the messages of the sector
    _refused: tuple = ()  # ids of messages of the sector that were refused, or could not be sent
    _is_full: bool  # whether the gateway had no room for one of them
    _passes: int  # through the sector, that ended with messages refused though others were taken
    _left_out = 0  # what is sent again begins behind this id

    def __init__(self, log, client_id: str, *others) -> None:
        Publisher.__init__(self, log, client_id, *others)  # `super` takes heap for each method
        self._tables = ""  # which tables speak
        self._receipt = ("", 0, 0)  # tables, batch and number of the newest receipt
        self.is_taking = False
        self._has_sunk = False  # whether a receipt of this connection has made flash have less settled
        self._first = log.last_id
        self._known = [str(crc32(client_id.encode()))]
        words = str(read_setting(log, KEY) or b"", "utf-8").split()
        if words[4:5] == self._known:  # messages under another name would have a wrong identity
            self._first, log.landed, end, again = map(int, words[:4])
            self._known = words[4:]
            if again:
                self._end, log.again, self._passes = end, again, 0
                self._left_out = max(self._first, log.landed)
        self._noted = log.landed

    def meet(self, store: str | None) -> None:
        """A gateway has accepted the connection; `store` is its store's name, None if it tells none."""
        log, known = self._log, self._known
        self.is_taking = self._has_sunk = False
        if log.again:
            self._scan, self._refused = None, ()
        if store is None or len(store) != 8 or store in known[1:]:
            return
        self._known = [known[0], store] + known[1:STORES_MAX]
        if len(known) == 1:
            self._note()
            return
        self._end, self._left_out = log.last_id, max(self._first, log.landed)
        while log.holds(self._end):  # what is not acknowledged goes to this gateway anyway
            self._end -= 1
        self._say(f"the gateway has a new store: messages from {self._left_out + 1} on go again")
        self._go_on(log.sector_from(1))

    def hear(self, topic: str, payload: bytes) -> None:
        """Takes a receipt. One that cannot be about this device's messages counts for nothing."""
        try:
            receipt = self._read(payload)
            if topic == TOPIC:
                self._tables = receipt[0]
            elif topic != topic_of(self._client_id):
                raise ValueError("it is of another origin")
            elif receipt[0] == self._receipt[0] and receipt[1] < self._receipt[1]:
                raise ValueError(f"it is of batch {receipt[1]}, and one of batch {self._receipt[1]} came before")
            else:
                self._receipt = receipt
        except (ValueError, MemoryError) as error:
            self._say(f"a receipt on {topic[:64]} does not count: {error}")
            return
        if self._tables == self._receipt[0]:
            self._log.landed = self._receipt[2]
            if max(self._first, self._log.landed) < self._left_out:  # these tables were made anew, and have less
                self._left_out = 0
                self._go_on(self._log.sector_from(1))
            elif self._log.landed >= self._noted + NOTED_EVERY:
                self._note()
            elif self._log.landed < self._noted and not self._has_sunk:
                self._has_sunk = True  # once over a connection, as each time wears flash
                self._note()

    def next_timer_ms(self) -> int | None:
        if self._log.again and self._scan is None and not self._refused and self._places() > 0:
            return 0  # the next turn of the loop has the next sector
        return Publisher.next_timer_ms(self)

    def _refuse(self, message_id: int, answer, now_ms: int) -> None:
        Publisher._refuse(self, message_id, answer, now_ms)
        if not self._log.holds(message_id):
            self._refused += (message_id,)
            self._is_full = self._is_full or answer.reason_code in (QUOTA_EXCEEDED, PACKET_IDENTIFIER_IN_USE)

    def fill(self, now_ms: int) -> bool:
        log, scan = self._log, self._scan
        if Publisher.fill(self, now_ms):
            return True
        if not log.again or self._session == IN_DOUBT or self._places() <= 0:
            return False
        if scan is None:
            if self._refused and self._refusals is not None and self._refusals.is_waiting:
                return False
            scan = self._scan = log.kept(log.again, max(self._first, log.landed) + 1, self._end, self._refused)
            self._is_full, self._refused = False, ()
        message = next(scan, None)
        if message is None:
            self._end_pass()
            return False
        if self._is_in_use(message[0]):
            self._is_full = True  # by a request
        else:
            self._send(message, False, now_ms)
        if self._on_the_way.get(packet_identifier(message[0])) != message[0]:
            self._refused += (message[0],)
        return True

    def _end_pass(self) -> None:
        """Goes on to the next sector, once all that was sent of this one is answered."""
        if not all(self._log.holds(message_id) for message_id in self._on_the_way.values()):
            return
        self._scan = None
        if self._refused:
            self._passes += self.is_taking and not self._is_full
            if self._passes < REFUSED_MAX:
                return
            self._say(f"{len(self._refused)} messages do not go again: the gateway refuses them, and takes others")
        self._go_on(self._log.sector_from(self._log.again + 1))

    def _go_on(self, again: int) -> None:
        """Goes on with this sector; 0: all is sent."""
        self._log.again, self._scan, self._refused, self._passes = again, None, (), 0
        self._note()

    def _note(self) -> None:
        """Makes all durable. If there is no room, a restart begins with what was noted before, and sends more again."""
        log = self._log
        self._noted = log.landed
        value = f"{self._first} {log.landed} {self._end} {log.again} " + " ".join(self._known)
        try:
            log.settings.set(KEY, value.encode())
        except (StoreFull, MessageTooLarge):
            pass

    def _read(self, payload: bytes) -> tuple:
        """Returns tables, batch, and up to which number all messages of this device's epoch are settled.

        Raises ValueError if it is no receipt, or settles a message of this epoch that was never sent. It takes little
        more of the heap than the payload, whatever that says: a retained one comes with each start.
        """
        if len(payload) > RECEIPT_BYTES_MAX:
            raise ValueError(f"it has {len(payload)} bytes, expected {RECEIPT_BYTES_MAX} at most")
        words = str(payload, "utf-8").split(" ", 5)
        if (
            not 4 <= len(words) <= 5
            or words[0] != "hf1"
            or len(words[1]) != 8
            or len(words[2]) > BATCH_CHARACTERS_MAX
            or (len(words) == 5 and len(words[4]) != SIGNATURE_CHARACTERS)
        ):
            raise ValueError("it is none, or cut short")
        texts = [words[2]]
        settled = f";{words[3]};"
        begin = settled.find(f";{self._log.epoch:08x}:") + 10
        if begin >= 10:
            own = settled[begin : settled.find(";", begin)].replace("-", ",")
            if own.count(",") >= NUMBERS_MAX:
                raise ValueError(f"it has more than {NUMBERS_MAX} numbers of an epoch")
            texts += own.split(",")
        numbers = list(map(int, texts))
        if list(map(str, numbers)) != texts or min(numbers) < 0:
            raise ValueError("its numbers are not spelt as those of a receipt")
        batch, numbers = numbers[0], numbers[1:] or [0]
        if sorted(numbers) != numbers:
            raise ValueError("its numbers do not ascend")
        if numbers[-1] > self._log.last_id:
            raise ValueError(f"it claims message {numbers[-1]}, and {self._log.last_id} is the last one")
        return words[1], batch, numbers[0]


class KeepingSession(Session):
    """Receives receipts, and hears of the gateway's store."""

    _asked = 0  # the packet identifier of the SUBSCRIBE

    def _handle(self, event, now_ms: int) -> None:
        kind = getattr(event, "TYPE", None)
        publisher = self._publisher
        if kind == PUBLISH and not event.qos and (event.topic + "/").startswith(TOPIC + "/"):
            publisher.hear(event.topic, event.payload)
        elif kind == SUBACK and event.packet_identifier == self._asked:
            for topic, reason_code in zip((TOPIC, topic_of(self._config.client_id)), event.reason_codes):
                if reason_code >= UNSPECIFIED_ERROR:
                    self._say(f"no receipts: the broker refuses the subscription to {topic}")
        else:
            if kind in (PUBACK, PUBCOMP) and event.reason_code < UNSPECIFIED_ERROR:
                publisher.is_taking = True
            Session._handle(self, event, now_ms)
            if kind == CONNACK and self.attached and self._connection is not None:
                publisher.meet(find_user_property(event.properties, STORE))
                try:  # QoS 0: no broker gathers receipts while the device is away, and the newest ones are retained
                    asked = Asked(SUBSCRIBE, [TOPIC, topic_of(self._config.client_id)])
                    self._asked = self._connection.request(asked, Asked)
                except WireError as error:
                    self._say(f"no receipts: {error}")


class Asked:
    """A SUBSCRIBE at QoS 0, or a SUBACK; over MQTT 5. The classes in `wire.codec` can do more, and take more heap."""

    TYPE = SUBACK

    def __init__(self, kind: int, filters: list) -> None:
        self.TYPE = kind
        self.filters = filters
        self.packet_identifier = 0
        self.reason_codes = b""

    def encode(self, level: int) -> bytes:
        body = encode_packet_identifier(self.packet_identifier) + b"\0"  # no properties
        for one in self.filters:
            body += encode_string(one) + b"\0"
        return frame(SUBSCRIBE << 4 | 2, body)

    @classmethod
    def decode(cls, flags: int, body: bytes, level: int):
        reader = Reader(body)
        answer = cls(SUBACK, [])
        answer.packet_identifier = reader.u16()
        decode_properties(reader, SUBACK)
        answer.reason_codes = body[reader.offset :]
        return answer


def read_until(section, config) -> None:
    """Reads the key `until` of a configuration: which classes stand for `Log`, `Publisher` and `Session`, if others.

    Only a device that has the key loads this module, so the names here take no heap of others. Raises ConfigError.
    """
    at_once, wait = "acknowledgement", "receipt"
    if section.choice("until", (at_once, wait)) == at_once:
        return
    if config.protocol_level != MQTT_5 or not config.qos:
        raise section.wrong("until", wait, f'"{at_once}" with mqtt_version 3.1.1 or qos 0')
    for own in (TOPIC, topic_of(config.client_id)):
        if config.commands is not None and matches(parse_shared(config.commands)[1], own):
            raise section.wrong("commands", config.commands, f"a filter that does not take its own {own}")
    config.until = (KeepingLog, KeepingPublisher, KeepingSession)
