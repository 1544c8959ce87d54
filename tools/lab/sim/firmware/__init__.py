"""What a simulated board's MicroPython has beside `tools.lab.sim.boards`: its start and its console. It runs there."""
