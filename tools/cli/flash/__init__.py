"""Reads a device's store from an image. It follows flash_store/SPEC.md and uses no code of `flash_store`."""
