"""Response topics go over a route under the new names, as their messages do."""

from gateway.message import Message
from uplink.shape import ShapeConfig
from uplink.shape.rules import Rules
from uplink.shape.shaper import Shaper
from wire.properties import RESPONSE_TOPIC


def response_topic(topic: str, response: str, *rules: ShapeConfig) -> str:
    message = Message(topic, b"", 1, properties={RESPONSE_TOPIC: response})
    shaped = Shaper(Rules(rules, "site-1", "central")).shape(message)
    assert message.properties[RESPONSE_TOPIC] == response, "others get the message as it was stored"
    return str(shaped.properties[RESPONSE_TOPIC])


def test_a_response_topic_is_renamed_by_the_rule_that_is_for_it() -> None:
    requests = ShapeConfig("requests/#", topic="plant/{topic}")
    answers = ShapeConfig("answers/#", topic="plant/{gateway}/{2-}")
    assert response_topic("requests/a", "answers/b/c", requests, answers) == "plant/site-1/b/c"
    assert response_topic("other", "answers/b", requests, answers) == "plant/site-1/b"


def test_a_response_topic_without_a_rule_or_a_new_name_stays_as_it_is() -> None:
    requests = ShapeConfig("requests/#", topic="plant/{topic}")
    short = ShapeConfig("answers/#", topic="plant/{3}")
    assert response_topic("requests/a", "elsewhere", requests) == "elsewhere"
    assert response_topic("requests/a", "answers/b", requests, short) == "answers/b"
    assert response_topic("requests/a", "", requests) == ""
