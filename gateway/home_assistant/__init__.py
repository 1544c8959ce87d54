"""The newest values of devices, and what Home Assistant needs to show them."""
