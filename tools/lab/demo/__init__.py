"""`holdfast demo`: the real system on one machine, broken on purpose, and the verdict from its tables."""
