"""ESP32: its loader, the parts of its flash, and the steps of flashing it."""
