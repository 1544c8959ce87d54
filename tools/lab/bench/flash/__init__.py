"""The flash store's benchmarks, beside littlefs."""
