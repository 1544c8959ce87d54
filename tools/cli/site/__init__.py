"""``holdfast site``: a site's authority, and what it gives to devices and gateways.

`Site` in `site.py` is the face for other commands: ``Site.open(folder).give(name)`` returns a `Given`, with the files
of a device and the keys of its configuration that use them.
"""
