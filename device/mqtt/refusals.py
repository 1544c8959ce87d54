"""Messages that a broker refuses: when the device sends each again, and when it sets one aside for good.

A broker may refuse one particular message, or all messages for a while (an access rule is being changed, its disk is
full). So the device sets a message aside only if the broker refuses it and accepts others: after the first refusal the
broker must refuse it PROOFS times more, each time after it has accepted another message. If the broker accepts no
message at all, the device keeps them all.

MQTT 3.1.1 has no refusal, and some MQTT 5 brokers answer with DISCONNECT. After the broker has ended a connection, the
device sends one message at a time, to learn over which message the connection ends. If the connection ends promptly
over the same message CLOSES times in a row, the device sends that message only after another one was accepted, and
alone. Each connection that then ends over it counts as a proof.

A message that does not fit into the heap when it is to be sent counts as refused: the heap may have room later, and the
other messages go out meanwhile.

A message that is set aside leaves a gap with the reason `rejected`, and a note; the newest notes are kept. Both are
durable before the message is freed.
"""

import json

from device.clock import earliest
from device.mqtt.settings import PROVEN, SET_ASIDE, DurableIds, read_setting
from flash_store.errors import MessageTooLarge, StoreFull
from flash_store.gaps import REJECTED
from wire.backoff import Backoff
from wire.reasons import (
    ADMINISTRATIVE_ACTION,
    CONNECTION_RATE_EXCEEDED,
    KEEP_ALIVE_TIMEOUT,
    MAXIMUM_CONNECT_TIME,
    MESSAGE_RATE_TOO_HIGH,
    PACKET_IDENTIFIER_IN_USE,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    SERVER_MOVED,
    SERVER_SHUTTING_DOWN,
    SERVER_UNAVAILABLE,
    SESSION_TAKEN_OVER,
    SUCCESS,
    USE_ANOTHER_SERVER,
)

PASSING = (PACKET_IDENTIFIER_IN_USE, QUOTA_EXCEEDED)  # these refusals pass: they say nothing about the message
PASSING_CLOSES = (
    SUCCESS,
    SERVER_UNAVAILABLE,
    SERVER_BUSY,
    SERVER_SHUTTING_DOWN,
    KEEP_ALIVE_TIMEOUT,
    SESSION_TAKEN_OVER,
    MESSAGE_RATE_TOO_HIGH,
    QUOTA_EXCEEDED,
    ADMINISTRATIVE_ACTION,
    USE_ANOTHER_SERVER,
    SERVER_MOVED,
    CONNECTION_RATE_EXCEEDED,
    MAXIMUM_CONNECT_TIME,
)
PROOFS = 2
CLOSES = 5
PROMPT_MS = 5_000  # a connection that ends later than this after a PUBLISH did not end because of it
SUSPECTS_MAX = 32  # messages that are watched at once
WINDOW = 8  # most messages in flight; fewer if the broker's Receive Maximum is smaller
WAIT_SHORTEST_MS, WAIT_LONGEST_MS = 1_000, 30_000
NOTES_MAX, NOTES_BYTES_MAX = 8, 512  # all settings together have 2 KiB
TEXT_CHARACTERS_MAX = 64  # a note's topic and reason are cut to this length


class Refusals:
    """What a `device.mqtt.publisher.Publisher` knows about refused messages.

    Args:
        log: the device's `flash_store.log.Log`.
        clock: `device.clock.Clock`.
        say: called with each line of text for the console and the log.
    """

    def __init__(self, log, clock, say) -> None:
        self._log = log
        self._clock = clock
        self._say = say
        self._proven = DurableIds(log, PROVEN)  # an id for each proof against a message, up to PROOFS - 1 of them
        self._taken = 0  # messages that the broker has accepted since the start
        self._refused_at: dict = {}  # message id: `_taken` when it was refused last
        self._backoff = Backoff(WAIT_SHORTEST_MS, WAIT_LONGEST_MS)
        self._tried: list = []  # ids of the refused messages that were last sent again
        self._ending: list = []  # ids of messages over which connections ended; each is sent after others, alone
        self._closes = (0, 0)  # message id, and how often in a row the connection ended over it alone
        self._one_by_one = 0  # the number of messages that are still to be sent one at a time
        self._begin()

    def _begin(self) -> None:
        self.skipped = 0  # the oldest refused message that newer ones were allowed to overtake; 0: none
        self._waiting: list = []  # ids of refused messages, until their pause is over
        self._until_ms: int | None = None  # when the pause is over
        self._refused: tuple | None = None  # the last message that was refused over this connection, and when
        self._taken_before = self._taken  # messages that were accepted over earlier connections
        self._quiet_ms: int | None = None  # from then on a message of `_ending` is sent even if no other was accepted

    def detach(self) -> None:
        """The connection is lost."""
        self._backoff.reset()
        self._begin()

    def forget(self) -> None:
        """Forgets all refusals: the device has another broker now, which may accept what the last one refused."""
        self._proven.change([])
        self._refused_at, self._ending = {}, []
        self._closes = (0, 0)
        self._one_by_one = 0

    def places(self, on_the_way: int) -> int:
        """Returns how many more messages may be sent while `on_the_way` are in flight."""
        places = WINDOW - on_the_way - len(self._waiting)
        return min(places, 1 - on_the_way) if self._one_by_one or self._ending else places

    @property
    def is_waiting(self) -> bool:
        """Whether a refused message waits for its pause to end."""
        return bool(self._waiting)

    def sets_back(self, message_id: int) -> bool:
        """Whether this message may be sent only when `next_alone` returns it."""
        return message_id in self._ending

    def next_alone(self, now_ms: int) -> int | None:
        """Returns a message over which connections ended and that may be sent now, or None.

        To be called only while no message is in flight.
        """
        ending = self._ending = [one for one in self._ending if self._log.holds(one)]
        if not ending or ending[0] in self._waiting:
            self._quiet_ms = None
        elif self._taken > self._taken_before:
            return ending[0]
        elif self._quiet_ms is None:
            self._quiet_ms = now_ms + WAIT_LONGEST_MS
        elif now_ms >= self._quiet_ms:
            return ending[0]
        return None

    def next_timer_ms(self, is_alone: bool) -> int | None:
        """Returns when `take_due` may have a new result, or `next_alone` if no message is in flight (`is_alone`)."""
        return earliest([self._until_ms, self._quiet_ms if is_alone else None])

    def take(self, message_id: int) -> None:
        """The broker has accepted a message."""
        self._taken += 1
        self._one_by_one = max(0, self._one_by_one - 1)
        self._forget(message_id)

    def refuse(self, message_id: int, reason_code: int | None, text: str, now_ms: int) -> None:
        """Notes that a message is refused.

        `reason_code` is the broker's. It is None if the device could not send the message: it exceeds a limit that the
        broker has announced, or the heap has no room for it.
        """
        self._refused = (message_id, now_ms)
        if reason_code in PASSING:
            pass
        elif self._taken > self._refused_at.get(message_id, self._taken) and self._prove(message_id, text, now_ms):
            return
        else:
            if len(self._refused_at) >= SUSPECTS_MAX:
                self._refused_at = {one: taken for one, taken in self._refused_at.items() if self._log.holds(one)}
            if len(self._refused_at) < SUSPECTS_MAX or message_id in self._refused_at:
                self._refused_at[message_id] = self._taken
        self._waiting.append(message_id)
        if self._until_ms is None:
            wait_ms = self._backoff.next_wait_ms()
            self._until_ms = now_ms + wait_ms
            self._say(f"message {message_id} refused: {text}; kept, it goes out anew in {wait_ms} ms")

    def end(self, sent: list, is_alone: bool, waited_ms: int, reason_code: int | None, text: str, now_ms: int) -> None:
        """The broker has ended the connection.

        Args:
            sent: ids of the messages whose PUBLISH the broker has not answered.
            is_alone: whether just one message was in flight.
            waited_ms: time since the last PUBLISH was sent.
            reason_code: reason code of the broker's DISCONNECT; None without a DISCONNECT.
            text: describes how the connection ended.
        """
        if reason_code in PASSING_CLOSES:
            return
        if self._refused is not None and now_ms - self._refused[1] <= PROMPT_MS:
            self._set_back(self._refused[0])  # mosquitto 2.0.11 refuses a QoS 2 message and then ends the connection
            return
        if not sent:
            return
        self._one_by_one = WINDOW
        if waited_ms > PROMPT_MS:
            self._closes = (0, 0)
        if not is_alone or waited_ms > PROMPT_MS:
            return
        message_id = sent[0]
        if message_id in self._ending:
            if self._taken > self._taken_before:
                self._prove(message_id, text, now_ms)
            return
        self._closes = (message_id, self._closes[1] + 1 if self._closes[0] == message_id else 1)
        if self._closes[1] >= CLOSES:
            self._set_back(message_id)
            self._say(f"message {message_id}: the broker ends the connection over it, {text}; others go first")

    def take_due(self, now_ms: int, anew: list) -> list:
        """Returns the ids of refused messages that are to be sent again now.

        If the same refused messages fill the whole window a second time, newer messages may overtake them: then none is
        returned, `skipped` is set, and the publisher comes back to them after the newest message.

        Args:
            anew: ids that an earlier call returned and that are not sent yet.
        """
        if self._until_ms is None or now_ms < self._until_ms:
            return anew
        self._until_ms = None
        refused, self._waiting = sorted(anew + self._waiting), []
        if len(refused) < WINDOW or refused != self._tried:
            self._tried = refused[:]
            return refused
        self.skipped = min(refused[0], self.skipped or refused[0])
        return []

    def _set_back(self, message_id: int) -> None:
        if message_id not in self._ending and self._log.holds(message_id):
            self._ending = self._ending[1 - SUSPECTS_MAX :] + [message_id]

    def _forget(self, message_id: int) -> None:
        self._proven.remove(message_id)
        self._refused_at.pop(message_id, None)
        if message_id in self._ending:
            self._ending.remove(message_id)

    def _prove(self, message_id: int, text: str, now_ms: int) -> bool:
        """Counts a proof against a message; returns whether the message is set aside now."""
        if not self._log.holds(message_id):
            return False  # it is stored no more, or is one that a device that waits for receipts sends again
        proven = self._proven.ids
        if proven.count(message_id) + 1 < PROOFS:
            self._proven.change(proven[1 - SUSPECTS_MAX :] + [message_id])
            self._refused_at[message_id] = self._taken
            return False
        message = next(self._log.messages(message_id - 1), None)
        if message is None or message[0] != message_id:
            return False  # the message is no longer stored
        try:
            self._note(message, text, now_ms)
            self._log.forsake([message_id], REJECTED)
        except StoreFull:
            return False  # the message stays until there is room for the note
        self._forget(message_id)
        self._say(f"message {message_id} to {message[3]} is set aside: {text}; the broker takes others")
        return True

    def _note(self, message: tuple, text: str, now_ms: int) -> None:
        """Adds a note of the message to the setting. Raises StoreFull."""
        message_id, _, _, topic, _ = message
        told = read_set_aside(self._log)
        notes = [note for note in told["messages"] if note["id"] != message_id]  # a power cut may have left one
        is_new = len(notes) == len(told["messages"])
        note = {"id": message_id, "topic": topic[:TEXT_CHARACTERS_MAX], "reason": text[:TEXT_CHARACTERS_MAX]}
        note.update({"boot": self._clock.boot_id, "up": now_ms // 1000})
        unix_ms = self._clock.unix_ms(now_ms)
        if unix_ms is not None:
            note["t"] = unix_ms // 1000
        notes = notes[1 - NOTES_MAX :] + [note]
        while True:
            value = json.dumps({"count": told["count"] + is_new, "messages": notes}).encode()
            if len(value) <= NOTES_BYTES_MAX or not notes:
                try:
                    self._log.settings.set(SET_ASIDE, value)
                    return
                except MessageTooLarge:  # the other settings leave too little room
                    if not notes:
                        return  # the gap still reports the message
            notes = notes[1:]


def read_set_aside(log) -> dict:
    """Returns `count`, the number of messages that were ever set aside, and `messages`, the newest notes."""
    value = read_setting(log, SET_ASIDE)
    return {"count": 0, "messages": []} if value is None else json.loads(value)
