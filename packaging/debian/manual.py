"""Manual pages and completions, made of the commands themselves.

usage: manual.py APP SHARE VERSION - with the folder of the package's programs and libraries, and that for /usr/share.
A page for each first word of a command; commands for which the package lacks a library have none.
"""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INSIDE = ("", "gateway")
FILES = {
    "/etc/holdfast/gateway.toml": "The gateway's configuration.",
    "/etc/holdfast/first.password": "The password of the account `first`, which the installation made.",
    "/var/lib/holdfast/store": "The gateway's messages.",
}
LABORATORY = ("tools.lab.bench.", "tools.lab.demo.", "tools.lab.torture.")


def text(words: str) -> str:
    """Returns words as roff has them."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.splitlines())


def page_of(name: str, summary: str, version: str, body: list[str]) -> bytes:
    """Returns a manual page, compressed."""
    head = [f'.TH {name.upper()} 1 "" "Holdfast {version}"', ".SH NAME", f"{text(name)} \\- {text(summary)}"]
    return gzip.compress("\n".join([*head, *body, ""]).encode(), mtime=0)


def about(path: str, command: Any) -> Iterator[str]:
    """Yields the lines of a manual page about one command."""
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    yield f'.SH "holdfast {text(path)}"'
    yield f".B holdfast {text(path)}"
    yield text(" ".join([*(["[OPTIONS]"] if options else []), *map(metavar, arguments)]))
    for paragraph in (command.help or "").split("\n\n"):
        yield ".PP"
        yield text(paragraph.replace("\f", ""))
    for one in (*arguments, *options):
        yield ".TP"
        names = ", ".join([*one.opts, *one.secondary_opts]) if one.param_type_name == "option" else metavar(one)
        yield f".B {text(names)}"
        yield text(getattr(one, "help", None) or "")


def metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name).upper()


def words_of(command: Any) -> list[str]:
    """Returns the options that can follow a command."""
    options = [one for one in command.params if one.param_type_name == "option"]
    names = {name for one in options for name in one.opts + one.secondary_opts if name.startswith("--")}
    return sorted(names | {"--help"})


def bash(tree: dict[str, list[str]]) -> str:
    cases = "\n".join(f'    "{path}") words="{" ".join(words)}" ;;' for path, words in tree.items())
    return f"""# bash completion of holdfast
_holdfast() {{
    local path="" word words="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
        case " {" ".join(f"{path}|" for path in tree if path)} " in
        *" ${{path:+$path }}$word| "*) path="${{path:+$path }}$word" ;;
        esac
    done
    case "$path" in
{cases}
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}")
}}
complete -o default -F _holdfast holdfast
"""


def zsh(tree: dict[str, list[str]]) -> str:
    """Leaves words of the command line away from its end until a command is left."""
    cases = "\n".join(f'    "{path}") choices=({" ".join(words)}) ;;' for path, words in tree.items())
    return f"""#compdef holdfast
local -a choices
local typed="${{(j: :)words[2,CURRENT-1]}}"
while (( ! $#choices )); do
    case "$typed" in
{cases}
    *" "*) typed="${{typed% *}}" ;;
    *) typed="" ;;
    esac
done
compadd -a choices
_files
"""


def fish(tree: dict[str, list[str]], summaries: dict[str, str]) -> str:
    lines = ["# fish completion of holdfast"]
    for path, words in tree.items():
        when = "".join(f"; and __fish_seen_subcommand_from {word}" for word in path.split())
        below = [word for word in words if not word.startswith("--")]
        if below:
            when += f"; and not __fish_seen_subcommand_from {' '.join(below)}"
        for word in words:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-f -a {word}"
            if summary := summaries.get(f"{path} {word}".strip(), "").replace("'", "\\'"):
                what += f" -d '{summary}'"
            lines.append(f"complete -c holdfast -n 'true{when}' {what}")
    return "\n".join([*lines, ""])


def main(app: str, share: Path, version: str) -> None:
    sys.path[:0] = [f"{app}/holdfast", f"{app}/libraries"]
    from tools.cli.commands import COMMANDS, GROUPS
    from tools.cli.main import load

    inside = {
        path: load(command)
        for path, command in COMMANDS.items()
        if command.extra in INSIDE and not command.target.startswith(LABORATORY)
    }
    summaries = {path: COMMANDS[path].summary for path in inside}
    firsts = list(dict.fromkeys(path.partition(" ")[0] for path in inside))
    summaries |= {first: GROUPS[first] for first in firsts if first in GROUPS}
    tree: dict[str, list[str]] = {"": [*firsts, "--help", "--version"]}
    for first in firsts:
        if first in GROUPS:
            tree[first] = [path.partition(" ")[2] for path in inside if path.startswith(f"{first} ")] + ["--help"]
    tree |= {path: words_of(command) for path, command in inside.items()}

    pages = share / "man/man1"
    pages.mkdir(parents=True)
    for first in firsts:
        body = [line for path, command in inside.items() if path.split()[0] == first for line in about(path, command)]
        (pages / f"holdfast-{first}.1.gz").write_bytes(page_of(f"holdfast-{first}", summaries[first], version, body))
    body = [".SH COMMANDS"]
    for path in inside:
        body += [".TP", f".B holdfast {text(path)}", text(summaries[path])]
    body.append(".SH FILES")
    for file, what in FILES.items():
        body += [".TP", f".I {file}", what]
    body += [".SH SEE ALSO", *(f".BR {text(f'holdfast-{first}')} (1)" for first in firsts)]
    what = "sensor readings from device to table: none lost, none counted twice"
    (pages / "holdfast.1.gz").write_bytes(page_of("holdfast", what, version, body))

    places = {
        "bash-completion/completions/holdfast": bash(tree),
        "zsh/vendor-completions/_holdfast": zsh(tree),
        "fish/vendor_completions.d/holdfast.fish": fish(tree, summaries),
    }
    for name, content in places.items():
        (share / name).parent.mkdir(parents=True)
        (share / name).write_text(content)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
