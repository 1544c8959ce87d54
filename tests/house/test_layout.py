"""Where modules lie, and in which order they import each other. The reasons are in docs/explanation/architecture.md."""

import ast
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.house.repository import FOLDERS, imports, modules, name, parse

MODULES_MAX = 15  # in a folder, beside its `__init__`: one trade, which a reader takes in at a glance
FLOORS_MAX = {
    "gateway": 7,
    "gateway.store": 7,
}  # a module of the package's root or a folder imports from lower floors only

Graph = dict[str, set[str]]


@cache
def graph_of_imports() -> Graph:
    """Every module of the repository but for tests, with the modules that it imports anywhere, for types too."""
    found = {
        name(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
        for folder in FOLDERS
        if folder != "tests"
        for path in modules(folder)
    }
    graph: Graph = {}
    for module, path in found.items():
        named = {one if one in found else one.rpartition(".")[0] for _, one in imports(path)}
        graph[module] = (named & found.keys()) - {module}
    return graph


def circle_in(graph: Graph) -> list[str]:
    """One circle of the graph, from a module through its importer back to itself; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def floors_of(folder: str) -> dict[str, int]:
    """The floor of each module and folder directly below a folder, the lowest is 1."""
    start = f"{folder}."
    depth = start.count(".")
    graph: Graph = {}
    for module, imported in graph_of_imports().items():
        if module.startswith(start):
            below = {other.split(".")[depth] for other in imported if other.startswith(start)}
            graph.setdefault(module.split(".")[depth], set()).update(below)
    graph = {part: below - {part} for part, below in graph.items()}
    floors: dict[str, int] = {}
    for part in TopologicalSorter(graph).static_order():
        floors[part] = 1 + max((floors[below] for below in graph[part]), default=0)
    return floors


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != "tests"])
def test_no_folder_has_more_modules_than_a_reader_takes_in(folder: str) -> None:
    counts = Counter(name(path.parent) for path in modules(folder) if path.name != "__init__.py")
    assert {place: count for place, count in counts.items() if count > MODULES_MAX} == {}


def test_no_modules_import_each_other_in_a_circle_types_included() -> None:
    assert circle_in(graph_of_imports()) == []


def test_a_circle_is_found() -> None:
    assert set(circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == {"b", "c"}


def packages() -> list[str]:
    """Every package of the repository, but for those of tests."""
    return sorted(
        {name(path.parent).replace("/", ".") for folder in FOLDERS if folder != "tests" for path in modules(folder)}
    )


@pytest.mark.parametrize("package", packages())
def test_what_lies_in_a_package_forms_no_circle_and_few_floors(package: str) -> None:
    floors = floors_of(package)
    assert {part: floor for part, floor in floors.items() if floor > FLOORS_MAX.get(package, len(floors))} == {}


def late_constants(module: ast.Module) -> list[str]:
    """The constants, and the logger, behind the first class or function, except constants that are made of these."""
    found: list[str] = []
    made: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            made.add(node.name)
        elif made and isinstance(node, ast.Assign | ast.AnnAssign):
            used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            named = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
            if used & made or not all(one.isupper() or one == "logger" for one in named):
                made |= named
            else:
                found += sorted(named)
    return found


@pytest.mark.parametrize("folder", ["gateway", "uplink"])
def test_constants_stand_before_the_first_class_or_function(folder: str) -> None:
    late = {name(path): late_constants(parse(path)) for path in modules(folder)}
    assert {place: found for place, found in late.items() if found} == {}


def test_a_late_constant_is_found() -> None:
    assert late_constants(ast.parse("A = 1\ndef f(): pass\nB = 2\nC = f()\nD = C\nAlias = int\n")) == ["B"]
