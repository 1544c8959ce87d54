"""Routes to NATS: a connection of its client library, with bounds on what a server may make it do."""
