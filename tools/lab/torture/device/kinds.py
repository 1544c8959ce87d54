"""What sorts of devices are tortured, beside each other: what each of them has to bear, and what may become of it."""

from dataclasses import dataclass

PLAIN_SECTORS = 16
FEW_SECTORS = 6  # the least that a store can have: it is full soon


@dataclass(frozen=True)
class Kind:
    """One device. Power, line and broker are cut for all of them, and each of their messages arrives.

    But where it is told to drop what does not fit, or what the broker may have lost with the session, it may tell of
    a gap in their place; and where the broker loses the session, what went out in two of them may be there twice.
    """

    name: str
    sectors: int = PLAIN_SECTORS
    on_full: str = "reject_new"
    lost_session: str = "resend"
    is_forgotten: bool = False  # now and then the broker loses its session

    @property
    def reasons(self) -> set[str]:
        """Of the gaps that it may tell of; what was torn by a cut was never stored."""
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
