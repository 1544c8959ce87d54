"""The firmware's benchmarks, on a real MicroPython."""
