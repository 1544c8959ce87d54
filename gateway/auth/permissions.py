"""Who may do what: connect by which client identifier, publish and subscribe to which topics, in whose name."""

from pathlib import Path

from gateway.access_rules import CONNECT, IDENTIFY, PUBLISH, SUBSCRIBE, Rule, fill, fits_name, load_rules
from gateway.filters import Levels, common, holds, split, takes
from gateway.message import Message
from gateway.topic_memory import remember
from wire.properties import RESPONSE_TOPIC
from wire.topics import parse_shared

TOPICS_REMEMBERED = 1024  # for each client and direction

Decisions = list[tuple[bool, Levels]]


class Access:
    """The access rules of a gateway.

    Args:
        path: their file; without one everybody may do everything but publish below ``$SYS`` and in others' names.
        gateway: the gateway's name, which only rules let anybody use as an origin.

    Raises:
        ConfigError: the file cannot be read, or a line is no rule.
    """

    def __init__(self, path: Path | None = None, gateway: str = "") -> None:
        self._path = path
        self.gateway = gateway
        self.rules = load_rules(path) if path else None

    def reload(self) -> None:
        """Reads the file again; all permissions follow at once. On ConfigError the rules stay as they are."""
        if self._path:
            self.rules = load_rules(self._path)

    def permissions(self, user: str | None, client_id: str) -> "Permissions":
        """Returns what a client may do; ``user`` is who it has proved to be, None without a proof."""
        return Permissions(self, user, client_id)


class Permissions:
    """What one client may do. ``Access.permissions`` makes them."""

    __slots__ = (
        "_access",
        "_bridge_state",
        "_client_id",
        "_identify",
        "_may_publish",
        "_may_receive",
        "_publish",
        "_rules",
        "_subscribe",
        "user",
    )

    def __init__(self, access: Access, user: str | None, client_id: str) -> None:
        self.user = user
        self._access = access
        self._client_id = client_id
        self._bridge_state = f"$SYS/broker/connection/{client_id}/state"
        self._read_rules()

    def may_connect(self, client_id: str) -> bool:
        """Whether it may use a client identifier, as the CONNECT has it.

        Any, where no rule says ``connect``. That a session belongs to the user who made it is not a matter of rules.
        """
        rules = [rule for rule in self._access.rules or () if CONNECT in rule.actions]
        for rule in rules:
            if rule.is_for(self.user) and fits_name(rule.what, self.user, client_id):
                return rule.allows
        return not rules

    def may_publish(self, topic: str) -> bool:
        """Whether it may publish to a topic name: with a PUBLISH, retained or not, or a will.

        Below ``$SYS`` to nothing but the name where a bridge of mosquitto says whether it is connected.
        """
        if self._rules is not self._access.rules:
            self._read_rules()
        known = self._may_publish.get(topic)
        return self._learn(self._may_publish, self._publish, topic) if known is None else known

    def may_receive(self, topic: str) -> bool:
        """Whether it may have a message of a topic name, whatever subscription that matches."""
        if self._rules is not self._access.rules:
            self._read_rules()
        known = self._may_receive.get(topic)
        return self._learn(self._may_receive, self._subscribe, topic) if known is None else known

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether it may subscribe to a valid topic filter.

        A filter that takes more than the rules allow is granted for what they do allow: ``may_receive`` decides
        message by message. A shared one has to be allowed as a whole, as its messages are for one member alone.
        """
        if self._rules is not self._access.rules:
            self._read_rules()
        if self._rules is None:
            return True
        share_name, bare_filter = parse_shared(topic_filter)
        allows = _allows_some if share_name is None else _allows_all
        return allows(self._subscribe, split(bare_filter))

    def may_ask_for_answers(self, response_topic: str) -> bool:
        """Whether a PUBLISH of its may name a response topic: one that it may itself publish to or receive.

        Else it could have somebody with more rights publish where it may not.
        """
        return self.may_receive(response_topic) or self.may_publish(response_topic)

    def may_identify(self, origin: str) -> bool:
        """Whether its messages may bring identities of an origin.

        Its client identifier or its user's name, where no rule says ``identify`` for that: whoever brings another's
        identities makes that one's own messages duplicates.
        """
        if self._rules is not self._access.rules:
            self._read_rules()
        for rule in self._identify:
            if fits_name(rule.what, self.user, origin):
                return rule.allows
        return origin in (self._client_id, self.user) and origin != self._access.gateway

    def may_send(self, message: Message) -> bool:
        """Whether it may publish a message: to its topic name, and with the response topic that it has, if any."""
        response_topic = message.properties.get(RESPONSE_TOPIC)
        return self.may_publish(message.topic) and (response_topic is None or self.may_ask_for_answers(response_topic))

    def may_bring(self, message: Message) -> bool:
        """Whether a message may have the identity that it has, if any."""
        return not message.origin or self.may_identify(message.origin)

    def _read_rules(self) -> None:
        rules = self._rules = self._access.rules
        self._publish = _decisions(rules or (), PUBLISH, self.user, self._client_id)
        self._subscribe = _decisions(rules or (), SUBSCRIBE, self.user, self._client_id)
        self._identify = tuple(rule for rule in rules or () if IDENTIFY in rule.actions and rule.is_for(self.user))
        self._may_publish: dict[str, bool] = {}
        self._may_receive: dict[str, bool] = {}

    def _learn(self, known: dict[str, bool], decisions: Decisions, topic: str) -> bool:
        levels = split(topic)
        if known is self._may_publish and levels[0] == "$SYS" and topic != self._bridge_state:
            answer = False  # the gateway's own
        elif self._rules is None:
            answer = True
        else:
            answer = next((allows for allows, wanted in decisions if takes(wanted, levels)), False)
        remember(known, topic, answer, TOPICS_REMEMBERED)
        return answer


def _decisions(rules: tuple[Rule, ...], action: str, user: str | None, client_id: str) -> Decisions:
    """The rules for one client and action, filled in.

    Where a name cannot be filled in, a rule that allows is left out, and one that denies denies everything from
    there on: by the choice of its name a client never gets more.
    """
    decisions: Decisions = []
    for rule in rules:
        if action not in rule.actions or not rule.is_for(user):
            continue
        levels = fill(rule.what, user, client_id)
        if levels is not None:
            decisions.append((rule.allows, levels))
        elif not rule.allows:
            break
    return decisions


def _allows_some(decisions: Decisions, wanted: Levels) -> bool:
    """Whether there may be a topic name that a filter takes and the rules allow."""
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
    """Whether the rules allow every topic name that a filter takes."""
    for allows, levels in decisions:
        both = common(levels, wanted)
        if both == wanted:
            return allows
        if both is not None and not allows:
            return False
    return False
