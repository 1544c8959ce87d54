"""Whole boards in simulation: a serial port, a loader that the makers' tools speak to, and a MicroPython that runs what
they wrote.

`WholeBoard` is an ESP32, `PicoBoard` an RP2040. What they do not show of a real board is in
docs/explanation/simulated-boards.md.
"""
