"""The durable message store: every message once, consumers as positions."""
