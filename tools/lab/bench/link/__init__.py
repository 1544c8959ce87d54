"""The serial link's benchmarks."""
