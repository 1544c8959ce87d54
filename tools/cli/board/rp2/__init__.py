"""RP2040 and RP2350: the drive of the ROM's loader, the console, and the steps of flashing such a board."""
