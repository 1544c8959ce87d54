"""The steps of `holdfast device build`, which compiles the firmware's sources for a board.

For the manifest of frozen modules it leaves the sources as they are. For an image that a board executes in place, and
for modules that it loads into its heap, it rewrites the program so that it takes less heap: it folds constants, links
modules, shortens the names of arguments, and keeps long texts in one place. What is loaded into the heap loses more:
the functions that nothing names, the names of private members and functions, and its sentences, which are in a file.
Each step makes a change only if it can prove that the program's meaning stays the same, and raises BuildError for code
that it cannot follow.
"""

from tools.cli.build.arguments import shorten
from tools.cli.build.folding import fold
from tools.cli.build.linking import link
from tools.cli.build.names import rename
from tools.cli.build.program import BuildError, Module, Program
from tools.cli.build.pruning import prune
from tools.cli.build.romfs import encode_image
from tools.cli.build.texts import gather, set_aside

__all__ = [
    "BuildError",
    "Module",
    "Program",
    "encode_image",
    "fold",
    "gather",
    "link",
    "prune",
    "rename",
    "set_aside",
    "shorten",
]
