"""Ways to a broker. Every port is used alike and none of them waits, but while a broker's name is looked up.

    open(now_ms)             begins to connect; raises OSError where that cannot even begin
    advance(ready, now_ms)   moves bytes, as far as `ready`, what the poll said about the port, allows
    next_event()             Up, then bytes as they arrive, then Down; None until more happens
    send(data, now_ms)       between Up and Down; what does not go at once goes with `advance`
    has_room                 whether a message that can wait should be sent now: it would not queue in RAM
    next_timer_ms()          when `advance` wants to be called at the latest, or None
    pause(now_ms)            asks for silence on a line that loses bytes while flash is erased: True once that may begin
    resume(now_ms)           ends it
    log(text)                a line for people at the far end, where the port has a way for it; it may be lost
    close()                  after Down, or to give up; `open` may follow

Where the heap is full as a port moves bytes, a part of the stream is missing: it ends with Down.

A port keeps itself registered with the `select.poll` object it was given. `name` is what people call it.
"""


class Up:
    """A fresh stream to a broker starts here."""


class Down:
    """The stream has ended or did not come about; `text` says why."""

    def __init__(self, text: str) -> None:
        self.text = text
