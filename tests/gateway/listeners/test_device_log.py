"""A device's lines in the gateway's log."""

import pytest

from gateway.listeners.serial import DeviceLog


def test_talkative_device_does_not_fill_the_log_and_what_is_left_out_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    log = DeviceLog("/dev/ttyUSB0")
    for number in range(1_000):
        log.write(b"line %d" % number, now_s=100.0)
    assert len(caplog.messages) == 20
    log.write(b"later", now_s=101.5)
    assert caplog.messages[-2:] == [
        "serial port /dev/ttyUSB0: 980 lines of the device left out",
        "serial port /dev/ttyUSB0: the device says 'later'",
    ]


def test_line_from_a_device_cannot_forge_another_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    DeviceLog("p").write(b"one\nERROR two\xff", now_s=1.0)
    assert caplog.messages == ["serial port p: the device says 'one\\nERROR two\ufffd'"]
