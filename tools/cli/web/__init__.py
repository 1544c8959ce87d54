"""`holdfast device build --web`: a folder from which a browser writes the firmware to an ESP32, by ESP Web Tools."""
