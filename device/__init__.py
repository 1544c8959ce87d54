"""The firmware: sensors, a store on flash, a publisher. Runs on MicroPython and on CPython."""
