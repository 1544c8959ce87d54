"""The topics of what gateways tell each other, where no client publishes or subscribes; and how a stream is named."""

RESERVED_TOPICS = "$holdfast/"

STREAM_TOPICS = "$SYS/STREAM/"
"""Before the name of a stream and a topic in it."""
STREAM_PROPERTY = "hf-stream"
"""The user property that names a stream."""
