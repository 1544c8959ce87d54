"""``holdfast uplink``: commands that ask the gateway that runs about its routes."""
