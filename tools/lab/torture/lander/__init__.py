"""``holdfast torture lander``: a lander behind mosquitto, which are killed while messages come as fast as they can."""
