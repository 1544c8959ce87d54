"""ESP Web Tools, from the file of its npm package: the scripts that a browser runs."""

import hashlib
import io
import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tools.cli.board.errors import Refused

NAME, TESTED = "esp-web-tools", "10.4.0"
SHA512 = (  # of the tested version's package, as its registry has it
    "de9c24785166e458fb510a3c4893582b9457aed342a6ae97f50a08e9b313e060"
    "595a0ac9aa39f462f33d8a11bbe01b4ca121585df983b647a1bb17b9d0f4cc3d"
)
SCRIPTS = re.compile(r"package/dist/web/([A-Za-z0-9][\w.-]*\.js)")
START = "install-button.js"
LICENSE = "LICENSE"
SCRIPT_BYTES_MAX, SCRIPTS_MAX = 4 * 1024 * 1024, 200


@dataclass(frozen=True)
class EspWebTools:
    """The version, and the content of each file by its name."""

    version: str
    files: dict[str, bytes]


def read_package(path: Path) -> EspWebTools:
    """Reads the file that `npm pack esp-web-tools` makes. Nothing is unpacked to the disk.

    Raises Refused, which names the file and its fault; OSError.
    """
    content = path.read_bytes()
    try:
        found = _read(content)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise Refused(f"{path} is no package of {NAME}: {error}") from error
    if found.version == TESTED and hashlib.sha512(content).hexdigest() != SHA512:
        raise Refused(f"{path} is not {NAME} {TESTED} as it was published; fetch it again: npm pack {NAME}@{TESTED}")
    return found


def _read(content: bytes) -> EspWebTools:
    files: dict[str, bytes] = {}
    about = None
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as package:
        for one in package:
            script = SCRIPTS.fullmatch(one.name)
            name = script[1] if script else {f"package/{LICENSE}": LICENSE, "package/package.json": ""}.get(one.name)
            if name is None:
                continue
            file = package.extractfile(one) if one.isfile() else None
            if file is None or one.size > SCRIPT_BYTES_MAX or len(files) >= SCRIPTS_MAX:
                raise ValueError(f"{one.name} is no plain file of a usual size")
            if name:
                files[name] = file.read()
            else:
                about = json.loads(file.read())
    if not isinstance(about, dict) or about.get("name") != NAME:
        raise ValueError("its package.json has another name, or is missing")
    if START not in files:
        raise ValueError(f"dist/web/{START} is missing")
    return EspWebTools(str(about.get("version")), files)
