"""Routes to brokers that speak AMQP 1.0: the engine of a library, with a line of this event loop."""
