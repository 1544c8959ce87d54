"""What `holdfast device build` makes of the firmware's sources.

Compiled modules and the manifest for frozen ones are made from the sources as they are. The image that a board executes
in place is a program rewritten to take less of the heap: constants folded, modules linked, arguments under short names,
texts gathered. Each step changes only what it can prove to mean the same, and raises BuildError for what it cannot.
"""

from tools.build.arguments import shorten
from tools.build.folding import fold
from tools.build.linking import link
from tools.build.program import BuildError, Module, Program
from tools.build.romfs import encode_image
from tools.build.texts import gather

__all__ = ["BuildError", "Module", "Program", "encode_image", "fold", "gather", "link", "shorten"]
