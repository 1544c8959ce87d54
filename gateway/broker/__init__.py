"""The broker puts the parts of a gateway together, stream by stream, and serves connections.

A `Broker` serves all streams. `stream_logs` opens the stores of the streams besides the default one.
"""

from gateway.broker.broker import Broker, naming_stream, stream_logs

__all__ = ["Broker", "naming_stream", "stream_logs"]
