"""The steps of `holdfast device build`, which compiles the firmware's sources for a board.

It compiles the sources as they are, also for the manifest of frozen modules. For the image that a board executes in
place it rewrites the program so that it takes less heap: it folds constants, links modules, shortens the names of
arguments and gathers texts. Each step makes a change only if it can prove that the program's meaning stays the same,
and raises BuildError for code that it cannot follow.
"""

from tools.cli.build.arguments import shorten
from tools.cli.build.folding import fold
from tools.cli.build.linking import link
from tools.cli.build.program import BuildError, Module, Program
from tools.cli.build.romfs import encode_image
from tools.cli.build.texts import gather

__all__ = ["BuildError", "Module", "Program", "encode_image", "fold", "gather", "link", "shorten"]
