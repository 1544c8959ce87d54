"""The device's store read from an image, by its SPEC alone: no line of `flash_store` is used here."""
