"""What is remembered by topic name has an end, and forgetting changes no answer."""

from gateway.access import Access
from gateway.store.audience import TOPICS_REMEMBERED, Audience
from gateway.topic_memory import NAME_SIZE_MAX, remember

LONG = "a" * (NAME_SIZE_MAX + 1)


def test_long_names_are_not_kept_and_the_others_only_so_many() -> None:
    known: dict[str, int] = {}
    remember(known, LONG, 1, 3)
    assert known == {}
    for number in range(5):
        remember(known, str(number), number, 3)
    assert known == {"3": 3, "4": 4}


def test_a_client_that_makes_up_long_topic_names_takes_no_memory() -> None:
    audience, permissions = Audience(), Access().permissions(None, "client")
    assert audience.takers(LONG) == {}
    assert permissions.may_publish(LONG)
    assert permissions.may_receive(LONG)
    assert (audience.remembered(), permissions._may_publish, permissions._may_receive) == (0, {}, {})
    for number in range(2 * TOPICS_REMEMBERED):
        audience.takers(str(number))
    assert audience.remembered() == TOPICS_REMEMBERED
