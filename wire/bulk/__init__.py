"""The most frequent packets, read and written many at once; on CPython only."""
