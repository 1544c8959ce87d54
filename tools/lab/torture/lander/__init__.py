"""``holdfast lab torture lander``: a lander and a mosquitto, killed while messages come as fast as they can."""
