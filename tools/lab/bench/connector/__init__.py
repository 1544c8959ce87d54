"""``holdfast lab bench connector``: lines and units that a gateway reads, beside pymodbus."""
