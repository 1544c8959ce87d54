import subprocess
import sys
from pathlib import Path

from tools.lab.testing.ports import free_port

DRAWS = 1000


def test_a_free_port_is_none_that_an_outgoing_connection_may_get() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < low for _ in range(20))


def test_two_processes_are_given_different_ports_while_both_run() -> None:
    program = f"from tools.lab.testing.ports import free_port; print(*(free_port() for _ in range({DRAWS}))); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = [int(port) for port in other.stdout.readline().split()]
        ours = [free_port() for _ in range(DRAWS)]
        other.communicate("\n")
    assert len({*ours, *theirs}) == 2 * DRAWS
