"""What a lander has received and not yet landed."""

from cloud.landing_file import Row

ROWS_MAX = 100_000
PAYLOAD_BYTES_MAX = 64 << 20
RECEIVE_MAXIMUM = 65_535
"""The most that MQTT lets a broker send without an acknowledgement, so nothing more comes beyond it."""


class Held:
    """Rows in order of arrival, and the packet identifiers that wait for their PUBACK.

    Rows of QoS 1 are in the broker's custody until they are acknowledged; rows of QoS 0 are in nobody's but ours.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Landed and acknowledged: nothing is held any more."""
        self.rows: list[Row] = []
        self.unacknowledged: list[int] = []
        self._payload_bytes = 0

    def add(self, row: Row, packet_identifier: int) -> None:
        """The packet identifier counts for QoS 1 only."""
        self.rows.append(row)
        self._payload_bytes += len(row.payload)
        if row.qos > 0:
            self.unacknowledged.append(packet_identifier)

    @property
    def full(self) -> bool:
        """Whether it is time to land whatever the clock says."""
        return (
            len(self.rows) >= ROWS_MAX
            or self._payload_bytes >= PAYLOAD_BYTES_MAX
            or len(self.unacknowledged) >= RECEIVE_MAXIMUM
        )

    def leave_to_broker(self) -> None:
        """Drops what the broker still holds and will send again."""
        kept = [row for row in self.rows if row.qos == 0]
        self.clear()
        for row in kept:
            self.add(row, 0)

    def forget_session(self) -> None:
        """The broker no longer holds anything of it, so there is nothing to acknowledge; the rows stay."""
        self.unacknowledged.clear()
