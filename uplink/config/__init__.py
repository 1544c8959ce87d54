"""The keys of a route to an MQTT broker, and what they mean: servers, TLS, the schedule."""
