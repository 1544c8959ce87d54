"""A store in a process of its own: ``FOLDER``; a line ``COUNT SIZE`` commits, the answer is ``ok`` or why it failed."""

import sqlite3
import sys
from pathlib import Path

from gateway.message import Message
from gateway.store import MESSAGES
from gateway.store.database import Database
from gateway.store.sqlite.folder import take_folder

if __name__ == "__main__":
    database = Database(Path(sys.argv[1]) / MESSAGES, "gw", take_folder(Path(sys.argv[1])))
    print("open", flush=True)
    for line in sys.stdin:
        count, size = map(int, line.split())
        try:
            database.commit([[Message("a", bytes(size), 1)] for _ in range(count)])
        except sqlite3.Error as error:
            print(error, flush=True)
        else:
            print("ok", flush=True)
        database.checkpoint()
