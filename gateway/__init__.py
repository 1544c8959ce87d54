"""The gateway's local broker: listeners, sessions, subscriptions and the durable message store."""
