"""The last event of a connection."""


class Closed:
    """The last event: write `data_to_send()`, then close the transport. `text` says why.

    `server_reference` is where the server sends its client, "" where it says nothing [section 4.13].
    """

    def __init__(self, reason_code: int, text: str, server_reference: str = "") -> None:
        self.reason_code = reason_code
        self.text = text
        self.server_reference = server_reference

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Closed) and repr(self) == repr(other)

    def __repr__(self) -> str:
        from wire.reasons import describe

        reference = f", go to {self.server_reference}" if self.server_reference else ""
        return f"Closed({describe(self.reason_code)}: {self.text}{reference})"
