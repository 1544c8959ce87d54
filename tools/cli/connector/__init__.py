"""``holdfast connector``: a connector's devices, before a gateway reads them."""
