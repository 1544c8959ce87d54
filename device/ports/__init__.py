"""Ports: byte streams to a broker. All have the same methods, and none blocks, except while it looks up a host name.

    open(now_ms)             begins to connect; raises OSError if it cannot even begin
    advance(ready, now_ms)   moves bytes, as far as `ready`, the port's event mask from the poll, allows
    next_event()             Up, then bytes as they arrive, then Down; None until more happens
    send(data, now_ms)       sends bytes, between Up and Down; `advance` sends the rest that does not go at once
    has_room                 whether to send another message now: it would not have to wait in RAM
    next_timer_ms()          when `advance` wants to be called at the latest, or None
    pause(now_ms)            asks for silence on a line that loses bytes while flash is erased: True once that may begin
    resume(now_ms)           ends the silence
    log(text)                sends a line of text for the peer's log, if the port can do that; it may be lost
    close()                  closes the port, after Down or to give up; `open` may follow

If the heap is full while a port moves bytes, part of the stream is lost: then the stream ends with Down.

A port keeps itself registered with the `select.poll` object that it was given. `name` is the port's name in logs.
"""


class Up:
    """Event: a new stream to the broker is open."""


class Down:
    """Event: the stream has ended, or could not be opened; `text` says why."""

    def __init__(self, text: str) -> None:
        self.text = text
