"""Receipts say which of the device's messages are in the tables [docs/reference/receipts.md]. A device that waits for
them keeps acknowledged messages in flash, and sends them again to a gateway that began a new store.

It sends them with their identities, so that they are counted once, and only while no other message is to be sent. It
goes through flash sector by sector, one in a turn of the device's loop. Each is noted once all of it is acknowledged,
so a power cut repeats a sector at most.

What the gateway refuses goes again after the pause of `device.mqtt.refusals`, and nothing else of its sector does. If
the gateway takes other messages, it is given up once it was refused REFUSED_MAX times. What it has no room for is not
given up.
"""

import binascii
import struct

from device.mqtt import Session
from device.mqtt.publisher import Publisher
from device.mqtt.settings import read_setting
from device.mqtt.states import IN_DOUBT
from flash_store.errors import MessageTooLarge, StoreFull
from flash_store.log import packet_identifier
from wire.errors import WireError
from wire.identity import find_user_property
from wire.packet_types import PUBLISH, SUBACK
from wire.reasons import PACKET_IDENTIFIER_IN_USE, QUOTA_EXCEEDED, UNSPECIFIED_ERROR

TOPIC = "hf/receipt"  # as in `wire.receipt`, whose code is for machines with more room
RECEIPT_BYTES_MAX = 1024
SIGNATURE_CHARACTERS = 86
NUMBERS_MAX = 65  # of an epoch: HIGH, and the ends of 32 runs
STORE = "hf-store"  # as in `wire.hops`
STORES_MAX = 4  # as many as a device has brokers
KEY = "until"  # of the setting; `device.assembly` removes it with a change of the client id
HEAD = "<5I"
NOTED_EVERY = 64  # messages that a receipt may settle before flash has it
REFUSED_MAX = 3  # as often as `device.mqtt.refusals` has a message refused before it is set aside


def topic_of(client_id: str) -> str:
    """Returns the topic name of the receipt that is about a device."""
    return TOPIC + "/" + client_id.replace("/", "%2F")  # no other character of a client id is escaped


class KeepingPublisher(Publisher):
    """Sends acknowledged messages again, from the sector `log.again` on, up to the id `_end`.

    The setting has: the id up to which nothing is sent again, `log.landed`, `_end`, `log.again`, the CRC-32 of the
    client id under which the messages were made, and the stores that the device knows, the newest first.
    """

    def __init__(self, log, client_id: str, *others) -> None:
        super().__init__(log, client_id, *others)
        self._topic = topic_of(client_id)
        self._tables = ""  # which tables speak
        self._receipt = ("", 0, 0)  # tables, batch and number of the newest receipt
        self._scan = log.kept(0, 0, 0)  # yields the messages of the sector
        self._is_scanning = False
        self._goes_on = False  # whether the next turn of the loop has the next sector
        self._refused: list = []  # ids of messages of the sector that were refused, or could not be sent
        self._is_full = False  # whether the gateway had no room for one of them
        self._is_taking = False  # whether the gateway took a message over this connection
        self._passes = 0  # through the sector, that ended with messages refused though others were taken
        self._has_sunk = False  # whether a receipt of this connection has made flash have less settled
        name = binascii.crc32(client_id.encode())
        value = read_setting(log, KEY) or b""
        self._first, self._end, self._stores = log.last_id, 0, ""
        if len(value) >= struct.calcsize(HEAD):
            first, landed, end, again, noted = struct.unpack_from(HEAD, value)
            if noted == name:  # messages under another name would have a wrong identity
                self._first, log.landed, self._end, log.again = first, landed, end, again
                self._stores = str(value[struct.calcsize(HEAD) :], "utf-8")
        self._name = name
        self._noted = log.landed
        self._left_out = self._after if log.again else 0  # what is sent again begins behind this id

    @property
    def topics(self) -> list:
        """The topics of the receipts that are about this device."""
        return [TOPIC, self._topic]

    def meet(self, store: str | None) -> None:
        """A gateway has accepted the connection; `store` is its store's name, None if it tells none."""
        if store is None or len(store) != 8 or store in self._stores.split():
            return
        if self._stores:
            self._end = self._log.last_acknowledged()
            self._say(f"the gateway has a new store: messages from {self._after + 1} on go again")
            self._stores = " ".join([store] + self._stores.split()[: STORES_MAX - 1])
            self._left_out = self._after
            self._go_on(self._log.sector_from(1))
        else:
            self._stores = store
            self._go_on(0)

    def hear(self, topic: str, payload: bytes) -> None:
        """Takes a receipt. One that cannot be about this device's messages counts for nothing."""
        try:
            if topic == TOPIC:
                self._tables = self._read(payload)[0]
            elif topic == self._topic:
                tables, batch, text = self._read(payload)
                if tables == self._receipt[0] and batch < self._receipt[1]:
                    raise ValueError(f"it is of batch {batch}, and one of batch {self._receipt[1]} came before")
                self._receipt = (tables, batch, self._settled(text))
            else:
                raise ValueError("it is of another origin")
        except (ValueError, MemoryError) as error:
            self._say(f"a receipt on {topic[:64]} does not count: {error}")
            return
        if self._tables == self._receipt[0]:
            self._log.landed = self._receipt[2]
            if self._after < self._left_out:  # these tables were made anew, and have less
                self._left_out = 0
                self._go_on(self._log.sector_from(1))
            elif self._log.landed >= self._noted + NOTED_EVERY:
                self._note()
            elif self._log.landed < self._noted and not self._has_sunk:
                self._has_sunk = True  # once over a connection, as each time wears flash
                self._note()

    def detach(self) -> None:
        super().detach()
        self._is_scanning = self._is_taking = self._has_sunk = False
        self._refused = []

    def fill(self, now_ms: int) -> bool:
        return super().fill(now_ms) or self._send_again(now_ms)

    def next_timer_ms(self) -> int | None:
        return 0 if self._goes_on else super().next_timer_ms()

    def handle_timer(self, now_ms: int) -> None:
        self._goes_on = False
        super().handle_timer(now_ms)

    @property
    def _after(self) -> int:
        """Messages up to this id do not go again."""
        return max(self._first, self._log.landed)

    def _acknowledge(self, message_id: int, now_ms: int) -> None:
        self._is_taking = True
        super()._acknowledge(message_id, now_ms)

    def _refuse(self, message_id: int, answer, now_ms: int) -> None:
        super()._refuse(message_id, answer, now_ms)
        if not self._log.holds(message_id):
            self._put_off(message_id, answer.reason_code in (QUOTA_EXCEEDED, PACKET_IDENTIFIER_IN_USE))

    def _put_off(self, message_id: int, is_full: bool) -> None:
        self._refused.append(message_id)
        self._is_full = self._is_full or is_full

    def _send_again(self, now_ms: int) -> bool:
        """Sends one message again if the window has a place; returns whether there may be another one to send."""
        log = self._log
        if not log.again or self._session == IN_DOUBT or self._places() <= 0:
            return False
        if not self._is_scanning:
            if self._refused and self._refusals is not None and self._refusals.is_waiting:
                return False
            self._is_scanning, self._is_full = True, False
            self._scan = log.kept(log.again, self._after + 1, self._end, self._refused)
            self._refused = []
        message = next(self._scan, None)
        if message is None:
            self._end_pass()
            return False
        if self._is_in_use(message[0]):
            self._put_off(message[0], True)  # by a request
            return True
        self._send((message[0], 1, False, message[1], message[2]), False, now_ms)
        if packet_identifier(message[0]) not in self._on_the_way:
            self._put_off(message[0], False)
        return True

    def _end_pass(self) -> None:
        """Goes on to the next sector, once all that was sent of this one is answered."""
        if not all(self._log.holds(message_id) for message_id in self._on_the_way.values()):
            return
        self._is_scanning = False
        if self._refused:
            self._passes += self._is_taking and not self._is_full
            if self._passes < REFUSED_MAX:
                return
            self._say(f"{len(self._refused)} messages do not go again: the gateway refuses them, and takes others")
        self._go_on(self._log.sector_from(self._log.again + 1))
        self._goes_on = self._log.again > 0

    def _go_on(self, again: int) -> None:
        """Goes on with this sector; 0: all is sent."""
        self._log.again = again
        self._is_scanning = False
        self._refused = []
        self._passes = 0
        self._note()

    def _note(self) -> None:
        """Makes all durable. If there is no room, a restart begins with what was noted before, and sends more again."""
        log = self._log
        self._noted = log.landed
        head = struct.pack(HEAD, self._first, log.landed, self._end, log.again, self._name)
        try:
            log.settings.set(KEY, head + self._stores.encode())
        except (StoreFull, MessageTooLarge):
            pass

    def _read(self, payload: bytes) -> tuple:
        """Returns tables, batch and what is settled. Raises ValueError."""
        if len(payload) > RECEIPT_BYTES_MAX:
            raise ValueError(f"it has {len(payload)} bytes, expected {RECEIPT_BYTES_MAX} at most")
        words = str(payload, "utf-8").split(" ", 5)
        if not 4 <= len(words) <= 5 or words[0] != "hf1" or len(words[1]) != 8:
            raise ValueError("it is none, or cut short")
        if len(words) == 5 and len(words[4]) != SIGNATURE_CHARACTERS:
            raise ValueError("its signature is cut short")
        return words[1], _number(words[2]), words[3]

    def _settled(self, text: str) -> int:
        """Returns the number up to which all messages of this device's epoch are settled. Raises ValueError.

        It takes little more of the heap than the text has, whatever that says: a retained one comes with each start.
        """
        text = f";{text};"
        begin = text.find(f";{self._log.epoch:08x}:") + 10
        if begin < 10:
            return 0
        own = text[begin : text.find(";", begin)].replace("-", ",")
        if own.count(",") >= NUMBERS_MAX:
            raise ValueError(f"it has more than {NUMBERS_MAX} numbers of an epoch")
        numbers = [_number(number) for number in own.split(",")]
        if sorted(numbers) != numbers:
            raise ValueError("its numbers do not ascend")
        if numbers[-1] > self._log.last_id:
            raise ValueError(f"it claims message {numbers[-1]}, and {self._log.last_id} is the last one")
        return numbers[0]


class KeepingSession(Session):
    """Receives receipts, and hears of the gateway's store."""

    def __init__(self, *parts) -> None:
        super().__init__(*parts)
        self._store: str | None = None
        self._asked = 0  # the packet identifier of the SUBSCRIBE

    def _handle_welcome(self, connack, now_ms: int) -> None:
        self._store = find_user_property(connack.properties, STORE)
        super()._handle_welcome(connack, now_ms)

    def _begin(self, session: int, now_ms: int) -> None:
        super()._begin(session, now_ms)
        if self.attached and self._connection is not None:
            self._publisher.meet(self._store)
            try:  # QoS 0: no broker gathers receipts while the device is away, and the newest ones are retained
                self._asked = self._connection.subscribe([(topic, 0) for topic in self._publisher.topics])
            except WireError as error:
                self._say(f"no receipts: {error}")

    def _handle(self, event, now_ms: int) -> None:
        kind = getattr(event, "TYPE", None)
        if kind == PUBLISH and not event.qos and (event.topic + "/").startswith(TOPIC + "/"):
            self._publisher.hear(event.topic, event.payload)
        elif kind == SUBACK and event.packet_identifier == self._asked:
            self._asked = 0
            for topic, reason_code in zip(self._publisher.topics, event.reason_codes):
                if reason_code >= UNSPECIFIED_ERROR:
                    self._say(f"no receipts: the broker refuses the subscription to {topic}")
        else:
            super()._handle(event, now_ms)


def _number(text: str) -> int:
    """Raises ValueError unless it is spelt as a receipt spells numbers."""
    number = int(text[:20])
    if str(number) != text or number < 0:
        raise ValueError(f"{text[:32]} is no number")
    return number
