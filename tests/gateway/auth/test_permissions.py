"""Access rules: a client may do what they allow, and nothing else."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.permissions import Access, Permissions
from gateway.auth.rules import load_rules
from host.errors import ConfigError
from wire.topics import matches


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "access"


def allowed(file: Path, rules: str, user: str | None = "alice", client_id: str = "c1") -> Permissions:
    file.write_text(rules)
    return Access(file, "gateway-1").permissions(user, client_id, "")


def test_without_a_file_all_is_allowed_but_to_publish_what_the_gateway_says_of_itself() -> None:
    everything = Access(None, "gateway-1").permissions(None, "", "")
    assert everything.may_connect("any")
    assert everything.may_publish("a/b")
    assert everything.may_subscribe("#")
    assert everything.may_subscribe("$share/g/#")
    assert everything.may_receive("$SYS/broker/uptime")
    assert not everything.may_publish("$SYS/broker/uptime")
    assert not everything.may_publish("$SYS")


def test_below_sys_a_client_publishes_the_state_of_its_own_bridge_alone_where_the_rules_let_it(file: Path) -> None:
    own, other = "$SYS/broker/connection/host.site/state", "$SYS/broker/connection/host.other/state"
    bridge = Access(None, "gateway-1").permissions(None, "host.site", "")
    assert bridge.may_publish(own)
    for topic in (other, own + "/more", "$SYS/broker/connection/host.site", "$SYS/broker/connection/+/state"):
        assert not bridge.may_publish(topic), topic
    assert not allowed(file, "allow * publish #\n", client_id="host.site").may_publish(own)
    for rule in ("$SYS/broker/connection/%c/state", "$SYS/broker/connection/+/state", "$SYS/#"):
        bridge = allowed(file, f"allow * publish {rule}\n", client_id="host.site")
        assert bridge.may_publish(own)
        assert not bridge.may_publish(other)


def test_receipts_are_published_only_by_clients_that_a_rule_with_their_topics_lets(file: Path) -> None:
    topics = ("hf/receipt", "hf/receipt/device")
    anyone = Access(None, "gateway-1").permissions("alice", "c1", "")
    assert not any(map(anyone.may_publish, topics))
    assert all(map(anyone.may_receive, topics))
    for wide in ("#", "hf/#", "+/receipt/#", "hf/+/device"):
        assert not any(map(allowed(file, f"allow * publish {wide}\n").may_publish, topics)), wide
    job = allowed(file, "deny * publish hf/receipt/other\nallow alice publish hf/receipt/#\nallow * publish #\n")
    assert all(map(job.may_publish, topics))
    assert not job.may_publish("hf/receipt/other")
    assert job.may_publish("hf/other")
    assert not any(map(Access(file, "gateway-1").permissions("bob", "c1", "").may_publish, topics))


def test_with_an_empty_file_all_but_connecting_is_denied(file: Path) -> None:
    nothing = allowed(file, "# nothing yet\n\n")
    assert nothing.may_connect("any")
    assert not nothing.may_publish("a")
    assert not nothing.may_subscribe("a")
    assert not nothing.may_receive("a")


def test_the_first_rule_that_fits_decides(file: Path) -> None:
    alice = allowed(file, "deny * publish site/locks/#\nallow alice publish site/#\ndeny * publish #\n")
    assert alice.may_publish("site/lamps")
    assert not alice.may_publish("site/locks")
    assert not alice.may_publish("site/locks/front")
    assert not alice.may_publish("elsewhere")


def test_a_rule_is_for_one_user_for_all_users_or_for_clients_without_one(file: Path) -> None:
    rules = 'allow alice publish a\nallow * publish b\nallow - publish c\nallow "of the house" publish d\n'
    for user, topics in [("alice", "ab"), ("bob", "b"), (None, "bc"), ("*", "b"), ("-", "b"), ("of the house", "bd")]:
        permissions = allowed(file, rules, user)
        assert [topic for topic in "abcd" if permissions.may_publish(topic)] == list(topics), user


def test_a_wildcard_subscription_brings_only_what_is_allowed(file: Path) -> None:
    alice = allowed(file, "deny * subscribe site/locks/#\nallow alice subscribe site/#\n")
    for topic_filter in ("#", "+/+", "site/#", "+/#", "site/+"):
        assert alice.may_subscribe(topic_filter), topic_filter
    assert alice.may_receive("site/lamps")
    assert not alice.may_receive("site/locks")
    assert not alice.may_receive("elsewhere")
    for topic_filter in ("site/locks/#", "site/locks/+", "elsewhere/#", "other", "site/locks"):
        assert not alice.may_subscribe(topic_filter), topic_filter


def test_a_shared_subscription_is_allowed_as_a_whole_or_not_at_all(file: Path) -> None:
    alice = allowed(file, "deny * subscribe site/locks/#\nallow alice subscribe site/#\n")
    assert alice.may_subscribe("$share/group/site/lamps/#")
    for topic_filter in ("site/locks/front", "#", "site/#", "+/lamps", "site/+"):
        assert not alice.may_subscribe(f"$share/group/{topic_filter}"), topic_filter


def test_wildcards_reach_no_system_topics(file: Path) -> None:
    alice = allowed(file, "allow * subscribe #\nallow * publish #\n")
    assert not alice.may_subscribe("$SYS/#")
    assert not alice.may_receive("$SYS/broker/uptime")
    assert not alice.may_publish("$SYS/broker/uptime")
    alice = allowed(file, "allow * publish,subscribe $SYS/#\n")
    assert alice.may_subscribe("$SYS/#")
    assert alice.may_receive("$SYS/broker/uptime")
    assert not alice.may_publish("$SYS/broker/uptime")


def test_answers_can_be_asked_for_only_where_the_client_may_publish_or_receive(file: Path) -> None:
    alice = allowed(file, "allow * subscribe answers/%c/#\nallow * publish notes\n")
    assert alice.may_ask_for_answers("answers/c1/1")
    assert alice.may_ask_for_answers("notes")
    assert not alice.may_ask_for_answers("answers/c2/1")
    assert not alice.may_ask_for_answers("site/locks/front")


def test_names_are_filled_in(file: Path) -> None:
    rules = "allow * publish %u/%c/#\nallow * subscribe of-%u-at-%c\n"
    alice = allowed(file, rules)
    assert alice.may_publish("alice/c1/x")
    assert not alice.may_publish("bob/c1/x")
    assert not alice.may_publish("alice/c2/x")
    assert alice.may_receive("of-alice-at-c1")
    assert allowed(file, rules, "%c", "c1").may_publish("%c/c1")
    assert not allowed(file, rules, "%c", "c1").may_publish("c1/c1")


TRICKY = ["+", "#", "a/b", "/", "a+", "a#", "$SYS", "$share", ""]


@pytest.mark.parametrize("name", TRICKY)
def test_a_name_that_would_make_another_rule_gets_nothing(file: Path, name: str) -> None:
    topics = ["a", "b", "a/b", "+", name or "x", "$SYS/broker/uptime", "x/x"]
    for sign, user, client_id in [("%u", name, "c1"), ("%c", "alice", name)]:
        rules = f"allow * publish,subscribe {sign}/#\nallow * subscribe {sign}\n"
        permissions = allowed(file, rules, user, client_id)
        assert not any(permissions.may_publish(topic) or permissions.may_receive(topic) for topic in topics)
        assert not permissions.may_subscribe("#")
        assert not permissions.may_subscribe(f"$share/g/{name or 'x'}/#")


@pytest.mark.parametrize("name", TRICKY)
def test_a_name_that_would_make_another_rule_escapes_no_ban(file: Path, name: str) -> None:
    rules = "deny * publish,subscribe private/%c/#\nallow * publish,subscribe #\n"
    permissions = allowed(file, rules, "alice", name)
    assert not permissions.may_publish("private/a/b")
    assert not permissions.may_subscribe("#")
    assert not permissions.may_receive("private/a")


def test_letters_that_look_the_same_are_not_the_same(file: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    alice = allowed(file, f"allow {composed} publish #\n", decomposed)
    assert not alice.may_publish("a")
    alice = allowed(file, f"allow * publish {composed}/#\n")
    assert alice.may_publish(f"{composed}/a")
    assert not alice.may_publish(f"{decomposed}/a")
    assert not alice.may_publish(f"\ufeff{composed}/a")
    assert not allowed(file, "allow * publish k\n").may_publish("\u212a")  # the Kelvin sign


def test_a_client_identifier_is_bound_to_its_user_where_a_rule_says_so(file: Path) -> None:
    rules = "allow * connect %u\nallow * connect %u-*\nallow lander connect *\n"
    alice = allowed(file, rules)
    assert alice.may_connect("alice")
    assert alice.may_connect("alice-phone")
    for client_id in ("bob", "bob-phone", "alice2", "Alice", ""):
        assert not alice.may_connect(client_id), client_id
    assert not allowed(file, rules, None).may_connect("-phone")
    assert not allowed(file, rules, "").may_connect("-phone")
    assert allowed(file, rules, "lander").may_connect("")
    assert not allowed(file, rules, "*").may_connect("bob")


def test_a_client_publishes_in_its_own_name_and_in_no_other(file: Path) -> None:
    for access in (
        Access(None, "gateway-1"),
        Access(file, "gateway-1") if file.write_text("allow * publish #\n") else Access(None, "gateway-1"),
    ):
        permissions = access.permissions("alice", "c1", "")
        assert permissions.may_identify("alice")
        assert permissions.may_identify("c1")
        for origin in ("bob", "c2", "Alice", "alice-phone", "*", "-", "%u"):
            assert not permissions.may_identify(origin), origin
        assert not access.permissions(None, "c1", "").may_identify("None")


def test_a_rule_says_in_which_other_names_a_client_may_publish(file: Path) -> None:
    rules = "deny * identify locks-*\nallow site-2 identify *\nallow * identify %u-*\ndeny * identify c1\n"
    assert allowed(file, rules, "site-2").may_identify("garage")
    assert not allowed(file, rules, "site-2").may_identify("locks-1")
    file.write_text(rules)
    access = Access(file, "gateway-1")
    alice = access.permissions("alice", "c1", "")
    assert alice.may_identify("alice")
    assert alice.may_identify("alice-phone")
    assert not alice.may_identify("bob")
    assert not alice.may_identify("c1")
    assert not allowed(file, rules, None, "x").may_identify("-phone")
    file.write_text("allow * identify *\n")
    access.reload()
    assert alice.may_identify("bob")


def test_only_a_rule_lets_a_client_publish_in_the_gateways_name(file: Path) -> None:
    assert not Access(None, "gateway-1").permissions("gateway-1", "gateway-1", "").may_identify("gateway-1")
    file.write_text("allow site-2 identify gateway-1\n")
    assert Access(file, "gateway-1").permissions("site-2", "c1", "").may_identify("gateway-1")


def test_only_a_rule_lets_a_user_watch(file: Path) -> None:
    assert not Access(None, "m").may_watch("alice")
    file.write_text("deny bob watch *\nallow alice watch m\nallow - watch other-*\nallow * watch site-%u\n")
    access = Access(file, "m")
    assert access.may_watch("alice")
    assert not access.may_watch("bob") and not access.may_watch(None)
    assert Access(file, "other-1").may_watch(None)
    assert not Access(file, "other-1").may_watch("alice")
    assert Access(file, "site-carol").may_watch("carol")
    assert not Access(file, "site-bob").may_watch("bob")


def test_only_a_rule_lets_a_client_be_a_neighbour(file: Path) -> None:
    assert not Access(None, "m").permissions("site-a", "site-a-to-m", "").may_be_neighbour("site-a")
    file.write_text("allow site-a neighbour site-a\nallow * neighbour branch-*\n")
    access = Access(file, "m")
    assert access.permissions("site-a", "c", "").may_be_neighbour("site-a")
    assert not access.permissions("site-b", "site-a", "").may_be_neighbour("site-a")
    assert access.permissions("site-b", "c", "").may_be_neighbour("branch-7")


def test_a_reload_counts_at_once_and_a_broken_file_changes_nothing(file: Path) -> None:
    file.write_text("allow * publish a\n")
    access = Access(file, "gateway-1")
    alice = access.permissions("alice", "c1", "")
    assert alice.may_publish("a")
    file.write_text("allow * publish b\n")
    access.reload()
    assert not alice.may_publish("a")
    assert alice.may_publish("b")
    file.write_text("allow everything\n")
    with pytest.raises(ConfigError):
        access.reload()
    assert alice.may_publish("b")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("permit * publish a", "expected 'allow WHO ACTIONS WHAT' or 'deny WHO ACTIONS WHAT'"),
        (
            "topic read a/#",
            "expected 'allow WHO ACTIONS WHAT' or 'deny WHO ACTIONS WHAT': docs/how-to/mosquitto.md has",
        ),
        ("allow * publish", "expected 'allow WHO ACTIONS WHAT' or 'deny WHO ACTIONS WHAT'"),
        ("allow * publish a b", "expected 'allow WHO ACTIONS WHAT' or 'deny WHO ACTIONS WHAT'"),
        (
            "allow * write a",
            "unknown action 'write', expected some of connect, identify, neighbour, publish, subscribe, watch",
        ),
        ("allow * publish a/#/b", "'a/#/b': # must be the last level [MQTT-4.7.1-1]"),
        ("allow * publish a+", "'a+': + must be a whole level [MQTT-4.7.1-2]"),
        ('allow * publish ""', "a topic filter is empty [MQTT-4.7.3-1]"),
        (
            "allow * subscribe $share/g/a",
            "'$share/g/a': a rule counts for shared subscriptions too, expected the filter",
        ),
        ("allow * connect,publish a", "connect has a name where others have a topic filter"),
        ("allow * watch,subscribe a", "watch has a name where others have a topic filter"),
        ("allow * identify,connect a", "identify has a name where others have a topic filter"),
        ("allow * connect a*b", "'a*b': a name of connect may have %u in it and * at its end, and no %c"),
        ("allow * identify %c", "'%c': a name of identify may have %u in it and * at its end, and no %c"),
        ('allow "alice publish a', "No closing quotation"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(file: Path, line: str, complaint: str) -> None:
    file.write_text(f"# rules\nallow * publish a\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        load_rules(file)
    assert str(caught.value).startswith(f"{file}:3: {complaint}")


def test_a_file_that_is_not_there_or_not_text_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match="access: No such file"):
        load_rules(file)
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="access: not UTF-8"):
        load_rules(file)


LEVELS = ["a", "b", "$SYS", "alice"]
TOPICS = ["/".join(names) for length in (1, 2, 3) for names in itertools.product([*LEVELS, "z"], repeat=length)]
FILTERS = st.lists(st.sampled_from([*LEVELS, "+", "%u", "%c", "x%c"]), max_size=3).flatmap(
    lambda head: st.sampled_from(["/".join(head) or "+", "/".join([*head, "#"])])
)
RULES = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["*", "-", "alice", "bob"]),
        st.sampled_from(["publish", "subscribe", "publish,subscribe"]),
        FILTERS,
    ),
    max_size=6,
)
USERS = st.sampled_from(["alice", "bob", None])
CLIENTS = st.sampled_from(["a", "b", "$SYS", "+", "a/b", "#"])
Rules = list[tuple[bool, str, str, str]]


def naively(rules: Rules, action: str, user: str | None, client_id: str, topic: str) -> bool:
    """Rule by rule, as the documentation puts it."""
    for allows, user_of_rule, actions, topic_filter in rules:
        if user_of_rule not in ("*", user if user else "-") or action not in actions.split(","):
            continue
        tricky = ("%u" in topic_filter and not user) or ("%c" in topic_filter and client_id not in ("a", "b"))
        filled = topic_filter.replace("%u", user or "").replace("%c", client_id)
        if tricky and not allows:
            return False
        if not tricky and matches(filled, topic):
            return allows
    return False


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rules") / "access"


def permissions_of(file: Path, rules: Rules, user: str | None, client_id: str) -> Permissions:
    lines = [
        f"{'allow' if allows else 'deny'} {user_of_rule} {actions} {what}"
        for allows, user_of_rule, actions, what in rules
    ]
    return allowed(file, "\n".join(lines), user, client_id)


@given(rules=RULES, user=USERS, client_id=CLIENTS, topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=20))
def test_a_topic_is_allowed_as_a_naive_reading_of_the_rules_says(
    shared_file: Path, rules: Rules, user: str | None, client_id: str, topics: list[str]
) -> None:
    permissions = permissions_of(shared_file, rules, user, client_id)
    for topic in topics:
        assert permissions.may_receive(topic) == naively(rules, "subscribe", user, client_id, topic)
        below_sys = topic.split("/")[0] == "$SYS"
        assert permissions.may_publish(topic) == (not below_sys and naively(rules, "publish", user, client_id, topic))


@given(rules=RULES, user=USERS, client_id=CLIENTS, asked=FILTERS.filter(lambda text: "%" not in text))
def test_a_subscription_is_refused_only_where_nothing_of_it_is_allowed_and_shared_only_where_all_is(
    shared_file: Path, rules: Rules, user: str | None, client_id: str, asked: str
) -> None:
    permissions = permissions_of(shared_file, rules, user, client_id)
    answers = [naively(rules, "subscribe", user, client_id, topic) for topic in TOPICS if matches(asked, topic)]
    if any(answers):
        assert permissions.may_subscribe(asked)
    if not all(answers):
        assert not permissions.may_subscribe(f"$share/group/{asked}")
    if not any(allows for allows, *_ in rules):
        assert not permissions.may_subscribe(asked)
