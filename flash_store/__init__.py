"""A power-fail-safe store of messages on flash; `SPEC.md` says what every byte means."""
