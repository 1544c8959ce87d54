import asyncio

import serial

from tools.lab.testing.serial_line import SerialLine


async def test_bytes_written_at_one_end_come_out_at_the_other_unchanged() -> None:
    line = SerialLine()
    line.open()
    every_byte = bytes(range(256))
    try:
        with serial.Serial(line.near, 115200, timeout=5) as near, serial.Serial(line.far, 115200, timeout=5) as far:
            near.write(every_byte)
            assert await asyncio.to_thread(far.read, 256) == every_byte
            far.write(every_byte[::-1])
            assert await asyncio.to_thread(near.read, 256) == every_byte[::-1]
    finally:
        line.close()


async def test_an_end_may_be_closed_and_opened_again_while_the_cable_stays() -> None:
    line = SerialLine()
    line.open()
    try:
        with serial.Serial(line.near, 115200, timeout=5) as near:
            with serial.Serial(line.far, 115200, timeout=5):
                pass
            with serial.Serial(line.far, 115200, timeout=5) as far:
                near.write(b"still here")
                assert await asyncio.to_thread(far.read, 10) == b"still here"
    finally:
        line.close()
