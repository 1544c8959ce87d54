"""Messages that a broker refuses: when each goes out anew, and when one is set aside so that it holds up no other.

A refusal may be of the message, or of all messages for a while: an access rule that is being changed, a full disk. So
a message is set aside only where the broker refuses this one and takes others: after a first refusal it has to be
refused PROOFS times more, each time after the broker has taken another message. Where it takes none, all are kept.

MQTT 3.1.1 has no refusal, and over MQTT 5 some brokers answer with a DISCONNECT. After a connection that the broker has
ended, messages go out one at a time, so that the message over which it ends is known. Where it ends at once over the
same one, CLOSES times in a row, that message goes out behind another one, and alone. Each time the connection ends over
it then is a proof.

A message that the heap has no room to send counts as refused: the heap may have room later, and the others go on.

A message that is set aside leaves a gap `rejected` and a note, the last ones of which are kept. Both are durable before
the message is freed.
"""

import json

from device.clock import earliest
from device.noted import PROVEN, SET_ASIDE, Noted, read_setting
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

PASSING = (PACKET_IDENTIFIER_IN_USE, QUOTA_EXCEEDED)  # a refusal that says nothing of the message
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
PROMPT_MS = 5_000  # a connection that stands for longer after the PUBLISH did not end over that
SUSPECTS_MAX = 32  # messages that are watched at once
WINDOW = 8  # messages on the way at most, fewer where the broker wants it so
WAIT_SHORTEST_MS, WAIT_LONGEST_MS = 1_000, 30_000
NOTES_MAX, NOTES_BYTES_MAX = 8, 512  # beside the other settings, which have 2 KiB together
TEXT_CHARACTERS_MAX = 64  # of a topic, and of a reason


class Refusals:
    """What a `device.publisher.Publisher` knows of refused messages.

    Args:
        log: the device's `flash_store.log.Log`.
        clock: `device.clock.Clock`.
        say: called with each line for people.
    """

    def __init__(self, log, clock, say) -> None:
        self._log = log
        self._clock = clock
        self._say = say
        self._proven = Noted(log, PROVEN)  # refused after the broker has taken another, but for the last time needed
        self._taken = 0  # messages that the broker has taken since the start
        self._refused_at: dict = {}  # message id: `_taken` when it was refused last
        self._backoff = Backoff(WAIT_SHORTEST_MS, WAIT_LONGEST_MS)
        self._tried: list = []  # what went out anew the last time
        self._ending: list = []  # ids of messages over which the connection ended, which go out behind others
        self._closes = (0, 0)  # message id, and how often in a row the connection ended over it alone
        self._one_by_one = 0  # so many more messages go out one at a time
        self._begin()

    def _begin(self) -> None:
        self.skipped = 0  # from this message on some are refused that others were let pass
        self._waiting: list = []  # ids of refused messages, until their pause is over
        self._until_ms: int | None = None
        self._refused: tuple | None = None  # the last message that was refused over this connection, and when
        self._taken_before = self._taken  # over earlier connections
        self._quiet_ms: int | None = None  # then a message of `_ending` goes out even where no other one is taken

    def detach(self) -> None:
        """The connection is lost."""
        self._backoff.reset()
        self._begin()

    def forget(self) -> None:
        """Another broker is there, which may take what the last one refused."""
        self._proven.change([])
        self._refused_at, self._ending = {}, []
        self._closes = (0, 0)
        self._one_by_one = 0

    def places(self, on_the_way: int) -> int:
        """How many messages more may go out."""
        places = WINDOW - on_the_way - len(self._waiting)
        return min(places, 1 - on_the_way) if self._one_by_one or self._ending else places

    @property
    def is_waiting(self) -> bool:
        """Whether a refused message has its pause."""
        return bool(self._waiting)

    def sets_back(self, message_id: int) -> bool:
        """Whether it goes out only when `next_alone` says so."""
        return message_id in self._ending

    def next_alone(self, now_ms: int) -> int | None:
        """The message over which connections ended that may go out now, where no other is on the way."""
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
        """When `take_due`, or `next_alone` where nothing is on the way, may have something new."""
        return earliest([self._until_ms, self._quiet_ms if is_alone else None])

    def take(self, message_id: int) -> None:
        """The broker has taken a message."""
        self._taken += 1
        self._one_by_one = max(0, self._one_by_one - 1)
        self._forget(message_id)

    def refuse(self, message_id: int, reason_code: int | None, text: str, now_ms: int) -> None:
        """The broker has refused a message, with a reason code; or it said before that it takes no such message, or
        the heap has no room to send it."""
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
            sent: ids of the messages whose PUBLISH it has not answered.
            is_alone: whether nothing else was on the way.
            waited_ms: since the last of them went out.
            reason_code: of its DISCONNECT, if any.
        """
        if reason_code in PASSING_CLOSES:
            return
        if self._refused is not None and now_ms - self._refused[1] <= PROMPT_MS:
            self._set_back(self._refused[0])  # mosquitto 2.0.11 refuses a message of QoS 2, and ends the connection
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
        """The refused messages that go out anew; `anew` are those that were to and have not yet.

        Those that fill the window twice let the others pass, and have their turn behind the last of them.
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
        """Whether it is set aside by that."""
        proven = self._proven.ids
        if proven.count(message_id) + 1 < PROOFS:
            self._proven.change(proven[1 - SUSPECTS_MAX :] + [message_id])
            self._refused_at[message_id] = self._taken
            return False
        message = next(self._log.messages(message_id - 1), None)
        if message is None or message[0] != message_id:
            return False  # it is gone
        try:
            self._note(message, text, now_ms)
            self._log.forsake([message_id], REJECTED)
        except StoreFull:
            return False  # until there is room for the note the message stays
        self._forget(message_id)
        self._say(f"message {message_id} to {message[3]} is set aside: {text}; the broker takes others")
        return True

    def _note(self, message: tuple, text: str, now_ms: int) -> None:
        """Raises StoreFull."""
        message_id, _, _, topic, _ = message
        told = read_set_aside(self._log)
        notes = [note for note in told["messages"] if note["id"] != message_id]  # of before a power cut
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
                except MessageTooLarge:  # with the other settings
                    if not notes:
                        return  # the gap tells of it
            notes = notes[1:]


def read_set_aside(log) -> dict:
    """`count` of the messages that were set aside, ever, and `messages`: the notes of the last ones."""
    value = read_setting(log, SET_ASIDE)
    return {"count": 0, "messages": []} if value is None else json.loads(value)
