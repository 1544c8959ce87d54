from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cloud.landing import manifest
from cloud.landing.manifest import Manifest, ManifestError
from tests.cloud.messages import land, row


@pytest.fixture
def described(landing: Path) -> Manifest:
    return land(landing, [row(1), row(2)])[0]


def test_sound_file_passes(landing: Path, described: Manifest) -> None:
    manifest.check_file(described, landing)


def test_missing_file_is_said_to_be_missing(landing: Path, described: Manifest) -> None:
    (landing / described.file).unlink()
    with pytest.raises(ManifestError, match="is missing"):
        manifest.check_file(described, landing)


def test_truncated_file_is_told_by_its_size(landing: Path, described: Manifest) -> None:
    file = landing / described.file
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ManifestError, match=f"has {described.bytes - 1} bytes, its manifest says {described.bytes}"):
        manifest.check_file(described, landing)


def test_changed_file_is_told_by_its_digest(landing: Path, described: Manifest) -> None:
    file = landing / described.file
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)
    with pytest.raises(ManifestError, match="SHA-256"):
        manifest.check_file(described, landing)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[:-5], "cannot be read"),
        (lambda text: b"[]", "cannot be read: Expected `object`"),
        (lambda text: text.replace(b'"rows":2', b'"rows":"2"'), "rows"),
        (lambda text: text.replace(b'"format":1', b'"format":2'), "format 2, this version reads 1"),
        (lambda text: text.replace(b"lander-1-", b"../elsewhere-"), "another file"),
        (lambda text: b"\xff", "cannot be read"),
    ],
)
def test_bad_manifest_is_refused(
    landing: Path, described: Manifest, change: Callable[[bytes], bytes], reason: str
) -> None:
    path = (landing / described.file).with_suffix(".json")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ManifestError, match=reason):
        manifest.read_manifest(path)


def test_manifest_of_the_future_with_more_fields_is_read(landing: Path, described: Manifest) -> None:
    path = (landing / described.file).with_suffix(".json")
    fields = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**fields, "remark": "new"}))
    assert manifest.read_manifest(path) == described
