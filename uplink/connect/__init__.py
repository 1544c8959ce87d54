"""The way from a route to its broker: servers in order, versions of MQTT, TLS and WebSocket, and when to connect."""
