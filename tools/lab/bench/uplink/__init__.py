"""The benchmarks of a gateway's routes, beside mosquitto's bridge."""
