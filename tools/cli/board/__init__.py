"""`holdfast flash`: from a blank board to its first reading.

`command` reads what the user gave, `esp32` and `rp2` go through the steps for their boards. `plan` decides what is
written, from what the board says and never from an earlier run. So an interrupted run is repeated, and ends well.
"""
