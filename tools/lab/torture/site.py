"""What a run tortures: publishers, processes, and the lines between them."""

from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.process import Process
from tools.lab.torture.publisher import Publisher


class Site:
    """The processes and lines of a run, which `open` of each kind of site starts and `close` ends.

    Attributes:
        publishers: they publish while faults strike.
        processes: by name, in the order of their start.
        links: the lines over TCP, by name.
        violations: what no count tells.
    """

    def __init__(self) -> None:
        self.publishers: list[Publisher] = []
        self.processes: dict[str, Process] = {}
        self.links: dict[str, NetworkLink] = {}
        self.violations: list[str] = []

    async def revive(self, fault: str = "the calm") -> None:
        """Starts each process again that has ended by itself in a fault, and notes it as a violation."""
        for name, process in self.processes.items():
            if not process.running and not self.is_done(name):
                self.violations.append(f"{name} has ended by itself, in {fault}: {' | '.join(process.lines[-2:])}")
                await process.up()

    def is_done(self, name: str) -> bool:
        """Whether a process may have ended."""
        return False

    async def drained(self) -> None:
        """Returns when all that is acknowledged has come where it has to, or notes as a violation what has not."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ends all processes, the last first, and cuts all lines."""
        for process in reversed(self.processes.values()):
            process.thaw()
            process.limit_files(-1)
            await process.down()
        for link in self.links.values():
            await link.cut()
