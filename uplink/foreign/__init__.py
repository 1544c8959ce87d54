"""Routes to other systems than MQTT brokers: NATS and AMQP 1.0. docs/explanation/foreign.md has the design."""
