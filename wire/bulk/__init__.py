"""The most frequent packets, read and written many at once, and the TLS of both ends; on CPython only."""
