"""Receipts say which of the device's messages are in the tables [docs/reference/receipts.md]. A device that waits for
them keeps acknowledged messages in flash, and sends them again to a gateway that began a new store.

It sends them with their identities, so that they are counted once, and only while no other message is to be sent. It
goes through flash sector by sector. Each is noted once all of it is acknowledged, so a power cut repeats a sector at
most.
"""

import binascii
import struct

from device.mqtt import Session
from device.mqtt.publisher import Publisher
from device.mqtt.settings import read_setting
from device.mqtt.states import IN_DOUBT
from flash_store.errors import MessageTooLarge, StoreFull
from wire.errors import WireError
from wire.identity import find_user_property
from wire.packet_types import PUBLISH, SUBACK
from wire.reasons import QUOTA_EXCEEDED, UNSPECIFIED_ERROR

TOPIC = "hf/receipt"  # as in `wire.receipt`, whose code is for machines with more room
RECEIPT_BYTES_MAX = 1024
SIGNATURE_CHARACTERS = 86
STORE = "hf-store"  # as in `wire.hops`
STORES_MAX = 4  # as many as a device has brokers
KEY = "kept"  # of the setting
HEAD = "<5I"
NOTED_EVERY = 64  # messages that a receipt may settle before flash has it


class KeepingPublisher(Publisher):
    """Sends acknowledged messages again, from the sector `log.again` on, up to the id `_end`.

    The setting has: the id up to which nothing is sent again, `log.landed`, `_end`, `log.again`, the CRC-32 of the
    client id under which the messages were made, and the stores that the device knows, the newest first.
    """

    def __init__(self, log, client_id: str, *others) -> None:
        super().__init__(log, client_id, *others)
        self._topic = TOPIC + "/" + client_id.replace("/", "%2F")  # no other character of a client id is escaped
        self._tables = ""  # which tables speak
        self._receipt = ("", 0, 0)  # tables, batch and number of the newest receipt
        self._scan = log.kept(0, 0, 0)  # yields the messages of the sector
        self._is_scanning = False
        self._is_refused = False  # whether the broker had no room for one of them
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
        except ValueError as error:
            self._say(f"a receipt on {topic[:64]} does not count: {error}")
            return
        if self._tables == self._receipt[0]:
            self._log.landed = self._receipt[2]
            if self._log.landed >= self._noted + NOTED_EVERY:
                self._note()

    def detach(self) -> None:
        super().detach()
        self._is_scanning = False

    def fill(self, now_ms: int) -> bool:
        return super().fill(now_ms) or self._send_again(now_ms)

    def handle_puback(self, puback, now_ms: int) -> None:
        message_id = self._on_the_way.get(puback.packet_identifier, 0)
        if puback.reason_code == QUOTA_EXCEEDED and not self._log.holds(message_id):
            self._is_refused = True
        super().handle_puback(puback, now_ms)

    @property
    def _after(self) -> int:
        """Messages up to this id do not go again."""
        return max(self._first, self._log.landed)

    def _send_again(self, now_ms: int) -> bool:
        """Sends one message again if the window has a place; returns whether there may be another one to send."""
        log = self._log
        if not log.again or self._session == IN_DOUBT or self._places() <= 0:
            return False
        if not self._is_scanning:
            self._is_scanning, self._is_refused = True, False
            self._scan = log.kept(log.again, self._after + 1, self._end)
        message = next(self._scan, None)
        if message is None:
            if self._on_the_way:
                return False  # until all of the sector is acknowledged
            self._is_scanning = False
            if not self._is_refused:
                self._go_on(log.sector_from(log.again + 1))
            return True
        if self._is_in_use(message[0]):
            self._is_refused = True  # by a request: it goes when the sector is gone through once more
            return False
        self._send((message[0], 1, False, message[1], message[2]), False, now_ms)
        return True

    def _go_on(self, again: int) -> None:
        """Goes on with this sector; 0: all is sent."""
        self._log.again = again
        self._is_scanning = False
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
        words = str(payload, "utf-8").split(" ")
        if len(payload) > RECEIPT_BYTES_MAX or not 4 <= len(words) <= 5 or words[0] != "hf1" or len(words[1]) != 8:
            raise ValueError("it is none, or cut short")
        if len(words) == 5 and len(words[4]) != SIGNATURE_CHARACTERS:
            raise ValueError("its signature is cut short")
        return words[1], _number(words[2]), words[3]

    def _settled(self, text: str) -> int:
        """Returns the number up to which all messages of this device's epoch are settled. Raises ValueError."""
        for one in text.split(";"):
            if one[:9] == f"{self._log.epoch:08x}:":
                numbers = [_number(number) for number in one[9:].replace("-", ",").split(",")]
                if sorted(numbers) != numbers:
                    raise ValueError("its numbers do not ascend")
                if numbers[-1] > self._log.last_id:
                    raise ValueError(f"it claims message {numbers[-1]}, and {self._log.last_id} is the last one")
                return numbers[0]
        return 0


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
            if max(event.reason_codes) >= UNSPECIFIED_ERROR:
                self._say("no receipts: the broker refuses the subscription")
        else:
            super()._handle(event, now_ms)


def _number(text: str) -> int:
    """Raises ValueError unless it is spelt as a receipt spells numbers."""
    number = int(text[:20])
    if str(number) != text or number < 0:
        raise ValueError(f"{text[:32]} is no number")
    return number
