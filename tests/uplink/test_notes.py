"""The notes of a gateway's routes, in a file that they share."""

import asyncio
from pathlib import Path

from uplink.connect.notes import RouteNotes


async def test_routes_that_note_their_servers_at_the_same_time_do_not_lock_each_other_out(tmp_path: Path) -> None:
    for trial in range(20):
        folder = tmp_path / str(trial)
        folder.mkdir()
        notes = [RouteNotes(folder, f"route-{number}") for number in range(8)]
        for one in notes:
            await one.load()
            one.note.server = f"mqtt://{trial}"
        await asyncio.gather(*(one.save() for one in notes))
        for number in range(8):
            found = RouteNotes(folder, f"route-{number}")
            await found.load()
            assert found.note.server == f"mqtt://{trial}"
