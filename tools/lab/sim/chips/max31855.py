"""A Maxim MAX31855 on SPI (datasheet 19-5793): one word of 32 bits for each selection."""


class Max31855:
    """The chip with that word; `word` is None where no power reaches it and its output is open."""

    def __init__(self, word: int | None) -> None:
        self.word = word
        self.is_selected = False
        self.flip: int | None = None  # the bit of the next word that the bus changes
        self._shifted = b""

    def select(self, level: int) -> None:
        self.is_selected = level == 0
        if level == 0 and self.word is not None:
            flip, self.flip = self.flip, None
            self._shifted = (self.word ^ (0 if flip is None else 1 << flip)).to_bytes(4, "big")
        else:
            self._shifted = b""

    def take(self, content: bytes) -> None:
        """It has no data input."""

    def give(self, buffer: bytearray) -> None:
        shifted = self._shifted[: len(buffer)]
        buffer[: len(shifted)] = shifted
        self._shifted = self._shifted[len(shifted) :]
