"""The status page: what the gateway knows of itself, in a browser. ``LOOK`` is its style, which reports have too."""

from pathlib import Path

LOOK = Path(__file__).with_name("files") / "look.css"
