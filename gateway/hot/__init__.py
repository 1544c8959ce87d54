"""The hot path: what most of a gateway's bytes are, without an object for each packet.

::

    bytes ─► inflow ─┬─ publishes ─► Run ─► message log ─► answers: all acknowledgements of it in one write
                     ├─ answers: the client's acknowledgements and PUBRELs
                     └─ everything else, packet by packet ─► wire's ServerConnection
    message log ─► cursors ─► outflow ─► bytes

Both ways mean the same: whatever is out of the ordinary in a packet leaves it to the other way.
"""
