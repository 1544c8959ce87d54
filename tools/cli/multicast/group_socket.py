"""The UDP socket of a receiver of a multicast group."""

import socket
import struct

RECEIVE_BUFFER = 4 * 1024 * 1024  # bytes, as far as the system allows it: datagrams that wait while this process works


def open_group_socket(address: str, port: int, interface: str | None = None) -> socket.socket:
    """Opens a socket that receives what comes to a group, and does not block.

    Args:
        address: the group's IPv4 address.
        port: its UDP port. Other receivers of this machine may have it too.
        interface: the network interface on which datagrams come; None is what the system's routes say.

    Raises:
        OSError: there is no such interface, or the system joins no more groups.
    """
    try:
        number = socket.if_nametoindex(interface) if interface else 0
    except OSError as error:
        raise OSError(f"interface {interface}: {error}") from error
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        opened.bind((address, port))
        # struct ip_mreqn of Linux: group, address of the interface, number of the interface
        joined = struct.pack("@4s4si", socket.inet_aton(address), bytes(4), number)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
    except OSError:
        opened.close()
        raise
    return opened
