"""`holdfast cloud receipts`: what a broker lacks of them is published, acknowledged and retained, and no more."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from paho.mqtt.client import MQTTMessage
from typer.testing import CliRunner

from cloud import Receipts
from host.credentials import Credentials
from host.server import parse_server
from tests.cloud.receipts.bare import Bare
from tests.support.subscriber import subscriber
from tools.cli.client import connected
from tools.cli.main import make_app
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.mosquitto import Mosquitto, mosquitto
from tools.lab.testing.ports import free_port
from wire.codec.packets import Publish
from wire.identity import RECEIVE, USER_PROPERTY, WISH_PROPERTY, decode_identity, find_user_property
from wire.receipt import Settled, decode_landed, decode_receipt, signed_bytes, split_signature

DEADLINE_S = 30


class Site:
    """Tables, and a broker that is told of them."""

    def __init__(self, bare: Bare, port: int) -> None:
        self.bare, self.port = bare, port

    def publish(self, *options: str, broker: str = "") -> tuple[int, str]:
        """Runs the command. Returns its exit code, and what it printed."""
        folders = ["--tables", str(self.bare.folder), "--landing", str(self.bare.landing)]
        url = broker or f"mqtt://127.0.0.1:{self.port}"
        done = CliRunner().invoke(make_app(), ["cloud", "receipts", "--broker", url, *folders, *options])
        return done.exit_code, done.output

    def published(self, *options: str) -> int:
        """Returns how many receipts of origins a run published."""
        code, text = self.publish("--json", *options)
        assert code == 0, text
        return int(json.loads(text)["receipts"])

    def retained(self, count: int) -> dict[str, MQTTMessage]:
        """Returns `count` retained messages of the broker, by topic."""
        with subscriber(self.port, "hf/receipt/#") as received:
            found = [received.get(timeout=DEADLINE_S) for _ in range(count)]
        return {one.topic: one for one in found}


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    bare = Bare(tmp_path)
    bare.arrived(1, ("garage", 1, 5), ("attic/1", 1, 1))
    return bare


@pytest.fixture(params=["mosquitto", "gateway"])
def site(bare: Bare, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    if request.param == "mosquitto":
        with mosquitto(tmp_path) as port:
            yield Site(bare, port)
        return
    gateway = Gateway(tmp_path, rules="allow * publish hf/receipt/#\nallow * publish,subscribe #\n")
    gateway.start()
    gateway.wait_ready()
    yield Site(bare, gateway.port)
    gateway.stop()


def test_broker_gets_all_receipts_at_first_and_then_what_is_new(site: Site) -> None:
    assert site.publish() == (
        0,
        "2 receipts up to batch 1 are with the broker; the broker had none of these tables\n",
    )
    found = site.retained(3)
    assert set(found) == {"hf/receipt/garage", "hf/receipt/attic%2F1", "hf/receipt"}
    assert {(one.qos, one.retain) for one in found.values()} == {(1, True)}
    assert decode_receipt(found["hf/receipt/garage"].payload).epochs == [Settled(0x1F, 5, [])]
    assert decode_landed(found["hf/receipt"].payload).batch == 1
    assert site.publish() == (0, "0 receipts up to batch 1 are with the broker\n")
    site.bare.arrived(2, ("garage", 6, 6))
    assert site.published() == 1
    found = site.retained(3)
    assert decode_receipt(found["hf/receipt/garage"].payload).epochs == [Settled(0x1F, 6, [])]
    assert decode_receipt(found["hf/receipt/attic%2F1"].payload).batch == 1
    assert decode_landed(found["hf/receipt"].payload).batch == 2
    assert site.published("--all") == 2


def test_receipts_have_identities_of_their_publisher_that_count_up(site: Site) -> None:
    """A gateway gives them none of its own: a lander lands no receipts, and those numbers would look lost."""
    site.publish()
    first = identities(site.port, 3)
    site.bare.arrived(2, ("garage", 6, 6))
    site.publish()
    second = identities(site.port, 3)
    name = f"receipts-{decode_landed(site.retained(3)['hf/receipt'].payload).tables}"
    assert {(origin, epoch) for origin, epoch, _ in first + second} == {(name, first[0][1])}
    assert sorted(seq for *_, seq in first) == [1, 2, 3]
    assert sorted(seq for *_, seq in second)[-2:] == [4, 5]


def identities(port: int, count: int) -> list[tuple[str, int, int]]:
    """Returns the identities of the retained receipts, as a lander asks for them."""

    async def ask() -> list[tuple[str, int, int]]:
        wish: dict[int, object] = {USER_PROPERTY: [(WISH_PROPERTY, RECEIVE)]}
        server = parse_server(f"mqtt://127.0.0.1:{port}")
        found: list[tuple[str, int, int]] = []
        async with connected(server, Credentials(), "test", wish) as client:
            client.protocol.subscribe([("hf/receipt/#", 1)])
            while len(found) < count:
                event = await client.event()
                if isinstance(event, Publish):
                    found.append(decode_identity(find_user_property(event.properties, "hf-id") or ""))
        return found

    return asyncio.run(ask())


def test_run_that_ended_before_the_last_receipt_is_made_up_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Receipts, "landed", failing)
        assert site.publish() == (2, "holdfast cloud receipts: the disk is away\n")
    assert site.published() == 2
    site.bare.arrived(2, ("garage", 6, 6))
    with monkeypatch.context() as patch:
        patch.setattr(Receipts, "landed", failing)
        assert site.publish()[0] == 2
    assert (site.published(), site.published()) == (1, 0)


def failing(_: Receipts) -> None:
    raise OSError("the disk is away")


def test_broker_that_has_lost_its_messages_gets_all_again(bare: Bare, tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path, is_persistent=False)
    broker.start()
    site = Site(bare, broker.port)
    assert (site.published(), site.published()) == (2, 0)
    broker.kill()
    broker.start()
    assert (site.published(), site.published()) == (2, 0)
    broker.stop()


def test_landing_time_alone_is_told_too(bare: Bare, tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        site = Site(bare, port)
        site.publish()
        bare.landed(2, "lander-1", 1, 1_767_268_800_000)  # of messages that came before
        bare.planned(2, 1_767_268_900_000)
        assert site.published() == 0
        landed = decode_landed(site.retained(3)["hf/receipt"].payload)
    assert (landed.batch, landed.landed_ms) == (2, 1_767_268_800_000)


@pytest.mark.parametrize("refused", ["write", "read"])
def test_broker_that_refuses_is_named_with_what_it_says(bare: Bare, tmp_path: Path, refused: str) -> None:
    action = "publish" if refused == "write" else "subscribe"
    rules = f"deny * {action} hf/#\nallow * publish,subscribe #\n"
    gateway = Gateway(tmp_path, rules=rules)
    gateway.start()
    gateway.wait_ready()
    code, text = Site(bare, gateway.port).publish()
    gateway.stop()
    assert code == 2
    assert f"mqtt://127.0.0.1:{gateway.port}: the server refuses a " in text
    assert "0x87" in text and "hf/receipt" in text


def test_broker_that_is_away_ends_it_with_2_and_the_next_run_publishes(bare: Bare, tmp_path: Path) -> None:
    port = free_port()
    code, text = Site(bare, port).publish()
    assert code == 2 and text.startswith(f"holdfast cloud receipts: mqtt://127.0.0.1:{port}: ")
    with mosquitto(tmp_path, port):
        assert Site(bare, port).published() == 2


def test_new_key_signs_and_its_public_key_proves(bare: Bare, tmp_path: Path) -> None:
    file = tmp_path / "receipts.key"
    with mosquitto(tmp_path) as port:
        site = Site(bare, port)
        code, text = site.publish("--new-signing-key", str(file))
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(text.split()[-1]))
        assert code == 0 and file.stat().st_mode & 0o777 == 0o600
        assert site.publish("--new-signing-key", str(file)) == (2, f"holdfast cloud receipts: {file}: File exists\n")
        assert site.published() == 2
        assert (site.published("--signing-key", str(file)), site.published("--signing-key", str(file))) == (2, 0)
        found = site.retained(3)
    for topic, message in found.items():
        part, signature = split_signature(message.payload)
        public.verify(signature, signed_bytes(topic, part))
    os.chmod(file, 0o640 | 0o004)
    code, text = Site(bare, 1).publish("--signing-key", str(file))
    assert code == 2 and "others may read or change it" in text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--ca", "x.pem"], "has no TLS"),
        (["--password-file", "none"], "none: No such file"),
        (["--key", "x.pem"], "belong together"),
    ],
)
def test_options_that_cannot_be_used_end_it_with_2(bare: Bare, options: list[str], says: str) -> None:
    code, text = Site(bare, 1).publish(*options)
    assert code == 2 and says in text


def test_where_there_are_no_tables_or_no_such_broker_it_says_so(bare: Bare, tmp_path: Path) -> None:
    code, text = Site(bare, 1).publish(broker="http://127.0.0.1")
    assert code == 2 and "--broker" in text
    code, text = Site(bare, 1).publish("--tables", str(tmp_path / "none"))
    assert code == 2 and "there are no tables" in text


def test_options_of_receipts_belong_to_a_broker() -> None:
    done = CliRunner().invoke(make_app(), ["cloud", "ingest", "--user", "a"])
    assert done.exit_code == 2 and "--receipts: expected the broker" in done.output
