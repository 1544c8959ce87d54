"""The kinds of tortured devices: the faults of each, and what may happen to its messages."""

from dataclasses import dataclass

PLAIN_SECTORS = 16
FEW_SECTORS = 6  # the least that a store can have: it is full soon


@dataclass(frozen=True)
class Kind:
    """One device. Power, line and broker are cut for all of them, and each of their messages arrives.

    But a device whose configuration says to drop messages, of a full store or of a lost session, may report a gap in
    their place. And if the broker loses the session, messages that were sent in two sessions may arrive twice.
    """

    name: str
    sectors: int = PLAIN_SECTORS
    on_full: str = "reject_new"
    lost_session: str = "resend"
    is_forgotten: bool = False  # now and then the broker loses its session

    @property
    def reasons(self) -> set[str]:
        """The reasons of the gaps that it may report; a message that was torn by a cut was never stored."""
        reasons = {"dropped": self.on_full == "drop_oldest", "forsaken": self.lost_session == "drop"}
        return {reason for reason, is_allowed in reasons.items() if is_allowed}

    @property
    def answers(self) -> bool:
        """Whether it answers commands; an answer that has been dropped would not be missed."""
        return self.on_full == "reject_new"


KINDS = (
    Kind("plain"),
    Kind("other"),
    Kind("full", FEW_SECTORS),
    Kind("dropping", FEW_SECTORS, "drop_oldest"),
    Kind("resending", is_forgotten=True),
    Kind("forgetting", lost_session="drop", is_forgotten=True),
)
