"""What each client may do: client identifiers, topics to publish and subscribe to, origins of its identities."""

from collections.abc import Callable, Collection, Container
from pathlib import Path

from gateway.auth.filters import Levels, common, holds, split, takes
from gateway.auth.rules import (
    CONNECT,
    IDENTIFY,
    NEIGHBOUR,
    PUBLISH,
    SUBSCRIBE,
    WATCH,
    Rule,
    fill,
    fits_name,
    load_rules,
)
from gateway.message import Message
from gateway.streams.names import BadStream, place_of
from gateway.topic_memory import remember
from wire.bulk.property_block import GATEWAY_MARK
from wire.properties import RESPONSE_TOPIC
from wire.receipt import LANDED_TOPIC
from wire.reserved import RESERVED_TOPICS, STREAM_TOPICS
from wire.route_numbers import STATEMENT_TOPICS, statement_topic
from wire.topics import parse_shared

TOPICS_REMEMBERED = 1024  # for each client and direction
PUBLISHED_REMEMBERED = 4096  # topics that a client publishes to
ORIGINS_REMEMBERED = 1024

RECEIPT_LEVELS = split(LANDED_TOPIC)

Decisions = tuple[tuple[bool, Levels], ...]


class Access:
    """The access rules of a gateway.

    Args:
        path: their file. Without one a client may do everything but publish below ``$SYS`` and with others' identities.
        gateway: the gateway's name; a client may use it as an origin only if a rule allows it.

    ``other_gateways`` are the names of the other gateways of its network, for which the same holds.

    Raises:
        ConfigError: the file cannot be read, or a line is not a rule.
    """

    def __init__(self, path: Path | None, gateway: str) -> None:
        self._path = path
        self.gateway = gateway
        self.other_gateways: Collection[str] = ()
        self.rules = load_rules(path) if path else None

    def reload(self) -> None:
        """Reads the file again; it changes all permissions at once. On ConfigError the rules stay as they are."""
        if self._path:
            self.rules = load_rules(self._path)

    def may_watch(self, user: str | None) -> bool:
        """Whether a user may look at the gateway's status page: a rule has to allow it. None: a visitor without one."""
        for rule in self.rules or ():
            if WATCH in rule.actions and rule.is_for(user) and fits_name(rule.what, user, self.gateway):
                return rule.allows
        return False

    def permissions(self, user: str | None, client_id: str, stream: str) -> "Permissions":
        """Returns what a client may do in a stream.

        ``user`` is the user it has logged in as, None without a login. The rules have the stream's topics with their
        prefix; the topics that the permissions are asked about have none.
        """
        return Permissions(self, user, client_id, stream)


class Permissions:
    """What one client may do. ``Access.permissions`` makes them.

    ``owns_client_id``: no client of another user has its client identifier in another stream.
    """

    __slots__ = (
        "_access",
        "_client_id",
        "_identify",
        "_may_publish",
        "_may_receive",
        "_prefix",
        "_publish",
        "_rules",
        "_subscribe",
        "owns_client_id",
        "stream",
        "user",
    )

    def __init__(self, access: Access, user: str | None, client_id: str, stream: str) -> None:
        self.user = user
        self.stream = stream
        self._prefix = (*split(STREAM_TOPICS)[:-1], stream) if stream else ()
        self._access = access
        self._client_id = client_id
        self.owns_client_id = True
        self._read_rules()

    def in_stream(self, stream: str) -> "Permissions":
        """Returns what the same client may do in a stream, "" for the default one."""
        if stream == self.stream:
            return self
        there = self._access.permissions(self.user, self._client_id, stream)
        there.owns_client_id = self.owns_client_id
        return there

    @property
    def may_use_stream(self) -> bool:
        """Whether the rules allow it to publish or subscribe to anything in the stream."""
        if self._rules is not self._access.rules:
            self._read_rules()
        everything = (*self._prefix, "#")
        return (
            not self.stream
            or self._rules is None
            or _allows_some(self._publish, everything)
            or _allows_some(self._subscribe, everything)
        )

    def may_connect(self, client_id: str) -> bool:
        """Whether it may use the client identifier of its CONNECT: any, if no rule has the action ``connect``.

        That a session belongs to the user that made it is checked elsewhere (``Sessions.take_up``).
        """
        rules = [rule for rule in self._access.rules or () if CONNECT in rule.actions]
        for rule in rules:
            if rule.is_for(self.user) and fits_name(rule.what, self.user, client_id):
                return rule.allows
        return not rules

    def may_be_neighbour(self, gateway: str) -> bool:
        """Whether it may be the neighbour of this name: a rule has to allow it."""
        for rule in self._access.rules or ():
            if NEIGHBOUR in rule.actions and rule.is_for(self.user) and fits_name(rule.what, self.user, gateway):
                return rule.allows
        return False

    def may_publish(self, topic: str) -> bool:
        """Whether it may publish to a topic name, with a PUBLISH or a will.

        Below ``$SYS`` that is only the topic where a bridge of mosquitto publishes whether it is connected.
        """
        if self._rules is not self._access.rules:
            self._read_rules()
        known = self._may_publish.get(topic)
        return self._learn(self._may_publish, self._publish, topic) if known is None else known

    def may_receive(self, topic: str) -> bool:
        """Whether it may receive a message with this topic name, whatever subscription matches."""
        if self._rules is not self._access.rules:
            self._read_rules()
        known = self._may_receive.get(topic)
        return self._learn(self._may_receive, self._subscribe, topic) if known is None else known

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether it may subscribe to a valid topic filter.

        A filter that matches more than the rules allow is granted: ``may_receive`` decides for each message. A shared
        subscription must be allowed as a whole, since each of its messages goes to one member alone.
        """
        if self._rules is not self._access.rules:
            self._read_rules()
        share_name, bare_filter = parse_shared(topic_filter)
        if bare_filter.startswith(RESERVED_TOPICS):
            return False
        if self._rules is None:
            return True
        allows = _allows_some if share_name is None else _allows_all
        return allows(self._subscribe, (*self._prefix, *split(bare_filter)))

    def may_receive_all(self, topic_filter: str) -> bool:
        """Whether it may receive every message that a valid topic filter matches."""
        if self._rules is not self._access.rules:
            self._read_rules()
        return self._rules is None or _allows_all(self._subscribe, (*self._prefix, *split(topic_filter)))

    def may_ask_for_answers(self, response_topic: str) -> bool:
        """Whether its PUBLISH may name a response topic: one that it may publish to or receive itself.

        Otherwise it could make a client with more rights publish where it may not.
        """
        if response_topic.startswith(STREAM_TOPICS):  # it is in another stream
            try:
                place = place_of(response_topic, None, self.stream)
            except BadStream:
                return False
            there = self.in_stream(place.stream)
            return there.may_receive(place.topic) or there.may_publish(place.topic)
        return self.may_receive(response_topic) or self.may_publish(response_topic)

    def may_identify(self, origin: str) -> bool:
        """Whether its messages may bring identities of an origin.

        Without a rule for the origin these are its client identifier and its user's name. A client that used another
        client's identities would make that client's own messages count as duplicates.
        """
        if self._rules is not self._access.rules:
            self._read_rules()
        for rule in self._identify:
            if fits_name(rule.what, self.user, origin):
                return rule.allows
        if origin == self._client_id and origin != self.user and not self.owns_client_id:
            return False
        if origin not in (self._client_id, self.user) or origin == self._access.gateway:
            return False
        return origin not in self._access.other_gateways

    def may_vouch(self, gateway: str) -> bool:
        """Whether its messages may bring what a gateway says of messages: when it accepted them, route numbers,
        and statements. Only a rule for this gateway's identities allows that: a client's own name is no gateway.
        """
        if self._rules is not self._access.rules:
            self._read_rules()
        return next((rule.allows for rule in self._identify if fits_name(rule.what, self.user, gateway)), False)

    @property
    def identifies_some(self) -> bool:
        """Whether a rule lets its messages bring identities of some origins."""
        if self._rules is not self._access.rules:
            self._read_rules()
        return any(rule.allows for rule in self._identify)

    def may_send(self, message: Message) -> bool:
        """Whether it may publish a message, by its topic name, its response topic, if any, and its identity.

        A statement needs the identity that its gateway gave it, and the right to bring that identity. The gateway would
        give a statement without an identity its own, and so vouch for it.
        """
        if message.topic.startswith(STATEMENT_TOPICS) and not self._may_state(message):
            return False
        response_topic = message.properties.get(RESPONSE_TOPIC)
        return self.may_publish(message.topic) and (response_topic is None or self.may_ask_for_answers(response_topic))

    def may_bring(self, message: Message) -> bool:
        """Whether it may bring a message with this identity, or without one."""
        return not message.origin or self.may_identify(message.origin)

    def _may_state(self, message: Message) -> bool:
        is_makers_own = message.topic.startswith(statement_topic(message.origin, ""))
        return is_makers_own and bool(message.origin) and self.may_vouch(message.origin)

    def _read_rules(self) -> None:
        rules = self._rules = self._access.rules
        self._publish = self._decisions(PUBLISH)
        self._subscribe = self._decisions(SUBSCRIBE)
        self._identify = tuple(rule for rule in rules or () if IDENTIFY in rule.actions and rule.is_for(self.user))
        self._may_publish: dict[str, bool] = {}
        self._may_receive: dict[str, bool] = {}

    def _decisions(self, action: str) -> Decisions:
        """In a stream only rules that name streams count: ``$SYS/#`` stands for the gateway's own topics."""
        found = _decisions(self._rules or (), action, self.user, self._client_id)
        return tuple(one for one in found if one[1][:2] == self._prefix[:2]) if self._prefix else found

    def _learn(self, known: dict[str, bool], decisions: Decisions, topic: str) -> bool:
        levels = split(topic)
        bridge_state = f"$SYS/broker/connection/{self._client_id}/state"
        if known is self._may_publish and levels[0] == "$SYS" and topic != bridge_state:
            answer = False  # the gateway's own topics
        elif topic.startswith(RESERVED_TOPICS):
            answer = False
        elif known is self._may_publish and levels[:2] == RECEIPT_LEVELS:
            answer = self._may_give_receipts(decisions, (*self._prefix, *levels))
        elif self._rules is None:
            answer = True
        else:
            levels = (*self._prefix, *levels)
            answer = next((allows for allows, wanted in decisions if takes(wanted, levels)), False)
        remember(known, topic, answer, TOPICS_REMEMBERED)
        return answer

    def _may_give_receipts(self, decisions: Decisions, levels: Levels) -> bool:
        """A receipt ends custody, so a rule has to name these topics: no wildcard stands for them."""
        begin = len(self._prefix)
        named = [one for one in decisions if one[1][begin : begin + 2] == RECEIPT_LEVELS]
        return next((allows for allows, wanted in named if takes(wanted, levels)), False)


class Topics(dict[bytes, str]):
    """The topic names, by their bytes, that a client has published to and may publish to now; all are well-formed.

    Topic names of statements are not among them: each message's identity decides whether it may be published.
    ``origins`` has the origins that it has brought and may bring; with GATEWAY_MARK, gateways it vouches for.
    """

    __slots__ = ("_gateways", "_rules", "origins")

    def __init__(self) -> None:
        self._rules: object = None
        self._gateways = 0
        self.origins: dict[bytes, None] = {}

    def keep_to(self, access: Access) -> None:
        """Forgets all of them if the access rules have changed, or one more gateway is known in the network."""
        gateways = len(access.other_gateways)
        if access.rules is not self._rules or gateways != self._gateways:
            self._rules, self._gateways = access.rules, gateways
            self.clear()
            self.origins.clear()

    def learn(self, message: Message, may_vouch: Callable[[str], bool]) -> None:
        """Learns from a message that was accepted; it has the identity that it brought, or none yet.

        One without a provenance has that of this gateway, for which its client may not vouch.
        """
        if not message.topic.startswith(STATEMENT_TOPICS):
            remember(self, message.topic.encode(), message.topic, PUBLISHED_REMEMBERED)
        if message.origin:
            remember(self.origins, message.origin.encode(), None, ORIGINS_REMEMBERED)
            for name in filter(may_vouch, (message.received_by, *message.gateways_of_links)):
                remember(self.origins, GATEWAY_MARK + name.encode(), None, ORIGINS_REMEMBERED)


class Trusting(Permissions):
    """What the next broker of a route may send down: everything but the gateway's own topics, with any identity."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Access(None, ""), None, "", "")

    def may_identify(self, origin: str) -> bool:
        return True

    def may_vouch(self, gateway: str) -> bool:
        return True

    @property
    def identifies_some(self) -> bool:
        return True

    def _may_give_receipts(self, decisions: Decisions, levels: Levels) -> bool:
        return True


class WithOrigins(Permissions):
    """What a client may do that may also bring the identities of some origins, whatever the rules say of these.

    Args:
        origins: these; more may be added.
    """

    __slots__ = ("_origins",)

    def __init__(self, access: Access, user: str | None, client_id: str, stream: str, origins: Container[str]) -> None:
        super().__init__(access, user, client_id, stream)
        self._origins = origins

    def may_identify(self, origin: str) -> bool:
        return origin in self._origins or super().may_identify(origin)


def _decisions(rules: tuple[Rule, ...], action: str, user: str | None, client_id: str) -> Decisions:
    """The rules for one client and action, with its names filled in.

    If a name cannot be filled in, a rule that allows is left out, and a rule that denies denies everything after it: a
    client cannot gain rights by the choice of its names.
    """
    decisions: list[tuple[bool, Levels]] = []
    for rule in rules:
        if action not in rule.actions or not rule.is_for(user):
            continue
        levels = fill(rule.what, user, client_id)
        if levels is not None:
            decisions.append((rule.allows, levels))
        elif not rule.allows:
            break
    return tuple(decisions)  # that of no rules takes no memory


def _allows_some(decisions: Decisions, wanted: Levels) -> bool:
    """Whether there may be a topic name that the filter matches and the rules allow."""
    denied: list[Levels] = []
    for allows, levels in decisions:
        both = common(levels, wanted)
        if both is None:
            continue
        if not allows:
            denied.append(levels)
        elif not any(holds(one, both) for one in denied):
            return True
    return False


def _allows_all(decisions: Decisions, wanted: Levels) -> bool:
    """Whether the rules allow every topic name that the filter matches."""
    for allows, levels in decisions:
        both = common(levels, wanted)
        if both == wanted:
            return allows
        if both is not None and not allows:
            return False
    return False
