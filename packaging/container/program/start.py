"""The first process of the container: writes a first configuration where there is none, and becomes `holdfast`.

It is on the volume, beside the store: `/etc/holdfast` leads there. What is mounted there instead is left as it is.
"""

import os
import secrets
import string
import subprocess
import sys
from pathlib import Path

HOLDFAST = [sys.executable, "-ISB", "/usr/lib/holdfast/current/main.py"]
CONFIGURATION = Path("/etc/holdfast/gateway.toml")
SHARE = Path("/usr/share/holdfast")
LETTERS = string.ascii_lowercase + string.digits


def configure_first() -> None:
    """Writes the configuration last, so that a start that was cut off is begun again. Raises OSError."""
    folder = CONFIGURATION.parent
    folder.resolve().mkdir(mode=0o700, exist_ok=True)
    password = _random(20)
    command = [*HOLDFAST, "gateway", "passwd", str(folder / "accounts"), "first"]
    subprocess.run(command, input=f"{password}\n", text=True, check=True, stdout=subprocess.DEVNULL)
    (folder / "first.password").write_text(f"{password}\n")
    if not (folder / "access").exists():
        (folder / "access").write_text((SHARE / "access").read_text())
    new = folder / "gateway.toml.new"
    new.write_text((SHARE / "gateway.toml").read_text().replace("@NAME@", f"gateway-{_random(8)}"))
    os.sync()
    new.replace(CONFIGURATION)
    os.sync()
    print(f"holdfast: the password of the first account, first, is in {folder}/first.password", file=sys.stderr)


def _random(count: int) -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(count))


def main() -> None:
    os.umask(0o077)
    words = sys.argv[1:]
    if words == ["gateway", "run"]:
        try:
            if not CONFIGURATION.exists():
                configure_first()
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"holdfast: no first configuration: {error}; user {os.geteuid()} must be able to write the volume")
    os.execv(HOLDFAST[0], [*HOLDFAST, *words])


if __name__ == "__main__":
    main()
