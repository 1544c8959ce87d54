"""Rows of text as commands print them, in columns."""


def columns(rows: list[tuple[str, ...]]) -> str:
    """Returns the rows, each cell as wide as the widest of its column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def printable(text: str) -> str:
    """Returns a text with ``?`` in place of the characters that a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in text)
