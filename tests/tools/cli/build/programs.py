"""Small programs that a build rewrites: their results are compared before and after."""

import sys
from collections.abc import Mapping
from pathlib import Path

from tools.cli.build import Program


def program(sources: Mapping[str, str]) -> Program:
    """A program of modules by their names; the path of ``a.b`` is ``a/b.py``."""
    return Program.parse({name: (f"{name.replace('.', '/')}.py", text) for name, text in sources.items()})


def run(folder: Path, modules: Mapping[str, str]) -> object:
    """What ``main.run()`` returns where these modules are the program."""
    for module, text in modules.items():
        path = folder / module.replace(".", "/")
        is_package = any(other.startswith(f"{module}.") for other in modules)
        path = path / "__init__.py" if is_package else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = {name.partition(".")[0] for name in modules}
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in names}
    sys.path.insert(0, str(folder))
    try:
        return __import__("main").run()
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] in names]:
            del sys.modules[name]
        sys.modules.update(kept)
