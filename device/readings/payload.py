"""The payload formats of readings."""

JSON, CBOR = "json", "cbor"
FORMATS = (CBOR, JSON)


def encoder(name: str):
    """Returns the `encode_pack` of this format; only the module in use is loaded."""
    if name == CBOR:
        from device.readings.senml_cbor import encode_pack
    else:
        from device.readings.senml import encode_pack
    return encode_pack
