"""The topics of what gateways tell each other: no client publishes or subscribes there."""

RESERVED_TOPICS = "$holdfast/"
