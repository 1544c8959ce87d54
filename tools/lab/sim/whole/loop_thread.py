"""An event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

DEADLINE_S = 30.0


class LoopThread:
    """A thread that runs an event loop from `begin` to `end`.

    Args:
        begins, ends: run in the loop, first and last.
    """

    def __init__(self, name: str, begins: Callable[[], Awaitable[None]], ends: Callable[[], Awaitable[None]]) -> None:
        self._begins, self._ends = begins, ends
        self._loop = asyncio.new_event_loop()
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._live, daemon=True, name=name)

    def begin(self) -> None:
        """Returns when the loop has begun; raises what it raised."""
        self._thread.start()
        self._ready.result()

    def end(self) -> None:
        """Returns when the thread has ended."""
        self.call(self._loop.stop)
        self._thread.join()

    def call(self, function: Callable[[], object]) -> None:
        """Calls a function in the thread, and waits for it. Raises TimeoutError, and what the function raises."""
        done: Future[None] = Future()

        def call() -> None:
            try:
                function()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._loop.call_soon_threadsafe(call)
        done.result(DEADLINE_S)

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._begins())
        except BaseException as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)  # only now: what stops the loop must not come while it still begins
        self._loop.run_forever()
        self._loop.run_until_complete(self._ends())
        self._loop.close()
