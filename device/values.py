"""A configuration in use."""


class Values:
    """Of a checked configuration, a key an attribute: without the code that checked it, which then leaves the heap."""
