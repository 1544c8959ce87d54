"""The gateway's benchmarks, beside mosquitto and the disk."""
