"""A route that shows the gateway's devices to hosts of Sparkplug B, as an edge node."""
