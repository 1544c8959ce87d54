"""Common MQTT clients through kills, stops and cut lines of a gateway."""
