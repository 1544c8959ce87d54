"""The firmware's entry: `import device.main; device.main.main("device.json")`."""

import sys

from device import memory
from device.errors import ConfigError
from flash_store.errors import StoreError


def main(config_path: str, on_message=None) -> None:
    """Runs until Ctrl-C or a power cut; both leave nothing to tidy up.

    Raises SystemExit where there is no port to say what is wrong: 2 where the configuration cannot be used, 1 where the
    flash cannot.

    Args:
        on_message: see `device.commands.Commands`.
    """
    memory.keep_dense()
    try:
        while True:
            _run(config_path, on_message)
    except ConfigError as error:
        _exit(2, _told(error))
    except StoreError as error:
        _exit(1, _told(error))
    except KeyboardInterrupt:
        pass


def _run(config_path: str, on_message) -> None:
    """From a start to a restart, or to the end of a deep sleep, on a board where the program goes on after these."""
    from device.config import load

    try:
        config = load(config_path)
        del load  # with all of its module, in whose room the device is made
        device = make(config, on_message)
    except (ConfigError, StoreError) as error:
        _say_only(config_path, error)
        return
    try:
        while not device.has_ended:
            device.advance()
    except Exception as error:
        device.fail(error)
        raise


def _say_only(config_path: str, error: Exception) -> None:
    from device.boards import board
    from device.config import Readable
    from device.safe_mode import run

    run(Readable(config_path, error), _told(error), board)


def make(config, on_message=None):
    """The device of a configuration. Raises ConfigError, StoreError."""
    memory.leave("device.config", "device.sensors.config")
    from device.boards import board

    if config.duty is None:
        from device.device import Device

        device = Device(config, board, on_message)
    else:
        from device.sleeper import Sleeper

        device = Sleeper(config, board, on_message)
    memory.leave("device.assembly", "flash_store.mount")
    return device


def _told(error: Exception) -> str:
    return f"{'flash' if isinstance(error, StoreError) else 'configuration'}: {error}"


def _exit(code: int, text: str) -> None:
    sys.stderr.write(text + "\n")
    raise SystemExit(code)
