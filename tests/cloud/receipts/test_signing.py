"""Receipts that are signed, and the file with the key."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from cloud import SigningKey, open_receipts
from host.errors import ConfigError
from tests.cloud.receipts.bare import Bare
from tools.lab.testing.certificates import Authority
from wire.receipt import RECEIPT_BYTES_MAX, join_signature, signed_bytes, split_signature


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey.create(tmp_path / "receipts.key")


def test_each_receipt_is_signed_with_its_topic(tmp_path: Path, key: SigningKey) -> None:
    bare = Bare(tmp_path)
    bare.arrived(1, ("a/b", 1, 1), *(("garage", 10**18 + 100 * n, 10**18 + 100 * n + 9) for n in range(50)))
    public = Ed25519PublicKey.from_public_bytes(key.public)
    with open_receipts(bare.folder, bare.landing, key) as receipts:
        made = [*receipts.of_origins(), receipts.landed()]
    assert [topic for topic, _ in made] == ["hf/receipt/a%2Fb", "hf/receipt/garage", "hf/receipt"]
    for topic, payload in made:
        part, signature = split_signature(payload)
        public.verify(signature, signed_bytes(topic, part))
        assert len(payload) <= RECEIPT_BYTES_MAX


def test_only_a_receipt_as_these_are_signed_says_what_was_published(tmp_path: Path, key: SigningKey) -> None:
    bare = Bare(tmp_path)
    bare.arrived(3, ("garage", 1, 1))
    other = SigningKey.create(tmp_path / "other.key")
    with open_receipts(bare.folder, bare.landing, key) as receipts:
        _, signed = receipts.landed()
        part, _ = split_signature(signed)
        assert receipts.published(signed) == 3
        forged = join_signature(part, other.sign(signed_bytes("hf/receipt", part)))
        of_origin = join_signature(part, key.sign(signed_bytes("hf/receipt/garage", part)))
        for bad in (part, forged, of_origin, b"", b"hf1 garbage", signed + b"="):
            assert receipts.published(bad) is None
    with open_receipts(bare.folder, bare.landing) as receipts:
        assert receipts.published(part) == 3
        assert receipts.published(signed) is None
        assert receipts.published(part.replace(receipts.tables.encode(), b"00000000")) is None
        assert receipts.published(part.replace(b" 3 ", b" 4 ")) is None
        assert receipts.published(part.replace(b" 3 ", b" 2 ")) == 2


def test_key_is_for_its_owner_alone_and_comes_back(tmp_path: Path, key: SigningKey) -> None:
    file = tmp_path / "receipts.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert SigningKey.read(file).public == key.public
    with pytest.raises(FileExistsError):
        SigningKey.create(file)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="others may read or change it"):
        SigningKey.read(file)


def test_file_without_such_a_key_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    _, other = authority.server()
    text = tmp_path / "text"
    text.write_text("no key")
    for file in (other, text):
        file.chmod(0o600)
        with pytest.raises(ConfigError, match="expected a private key of Ed25519"):
            SigningKey.read(file)
    with pytest.raises(ConfigError, match="No such file"):
        SigningKey.read(tmp_path / "none")
