"""`holdfast check broker`: what the MQTT standards demand of a server, seen from outside."""
