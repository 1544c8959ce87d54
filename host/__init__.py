"""What every program of ours that runs on CPython asks of its machine: servers by URL, password files, PEM files, TLS,
mounted disks.

The gateway, its routes, the lander and the commands import it; boards do not.
"""
