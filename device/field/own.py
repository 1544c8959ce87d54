"""The networks and ports of a confirmed move, of which nothing is outstanding: all that a start of most moved devices
needs of `device.field`."""

import binascii
import json

OUTSTANDING = b'"of": '  # is in a setting of `device.field.place` if a trial or an answer is outstanding


def use_own(device, value: bytes) -> bool:
    """Puts networks and ports of a confirmed move into the configuration.

    Returns False if the setting has more, or belongs to another file: then `device.field.place` has to look at it.
    """
    if OUTSTANDING in value:
        return False
    config = device.config
    state = json.loads(value)
    config.place_base = base_of(config)
    if state["base"] != config.place_base:
        return False
    networks, ports = device.read_place(state["own"])
    config.networks = networks or config.networks
    config.ports = ports or config.ports
    device.say("network and port are those of a move, in place of those of the device's file")
    return True


def base_of(config) -> int:
    """Returns a number of a configuration's networks and ports, which is another one if one of them changes."""
    parts: list = [(one.ssid, one.password, one.address) for one in config.networks]
    for port in config.ports:
        parts.append((port.kind, port.user, port.password))
        parts.append((port.path, port.baud) if port.kind == "uart" else (port.host, port.port))
        if port.kind == "tls":
            parts.append((port.server_name, port.ca, port.certificate, port.key))
    return binascii.crc32(repr(parts).encode())
