"""`[[multicast]]` in the configuration file."""

from pathlib import Path

import pytest

from gateway.config.load import load
from host.errors import ConfigError

GATEWAY = """\
name = "plant"
[store]
path = "store"
[[listener]]
kind = "tcp"
{tls}
"""
TLS = 'tls.certificate = "server.pem"\ntls.key = "server.key"'
GROUP = '[[multicast]]\nname = "{name}"\naddress = "{address}"\nport = {port}\ntopics = {topics}\n{more}\n'


def group(
    name: str = "wall", address: str = "239.1.2.3", port: object = 5007, topics: str = '["a/#"]', more: str = ""
) -> str:
    return GROUP.format(name=name, address=address, port=port, topics=topics, more=more)


def written(folder: Path, *groups: str, tls: str = TLS) -> Path:
    path = folder / "gateway.toml"
    path.write_text(GATEWAY.format(tls=tls) + "".join(groups))
    return path


def test_groups_are_read_with_their_defaults(tmp_path: Path) -> None:
    config, _ = load(written(tmp_path, group(), group("hall", port=5008, more='interface = "eth0"\nttl = 4')))
    wall, hall = config.multicast
    assert (wall.name, wall.address, wall.port, wall.topics) == ("wall", "239.1.2.3", 5007, ("a/#",))
    assert (wall.interface, wall.ttl, wall.rotate_s) == (None, 1, 3600)
    assert (hall.interface, hall.ttl) == ("eth0", 4)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (group(address="224.0.0.1"), "multicast[0].address: '224.0.0.1': expected an IPv4 address of 239.0.0.0/8"),
        (group(address="ff15::7"), "multicast[0].address: 'ff15::7': expected an IPv4 address of 239.0.0.0/8"),
        (group(address="all"), "multicast[0].address: 'all': expected an IPv4 address"),
        (group(name="a b"), "multicast[0].name: expected"),
        (group(port=0), "multicast[0].port: expected a number of at least 1"),
        (group(port='"5007"'), "multicast[0].port: expected a number, got text"),
        (group(topics="[]"), "multicast[0].topics: expected"),
        (group(topics='["a#"]'), "multicast[0].topics: "),
        (group(topics='["$share/g/a"]'), "multicast[0].topics: '$share/g/a': expected a topic filter without $share"),
        (group(topics='["$SYS/#"]'), "multicast[0].topics: '$SYS/#': what begins with $ does not go over multicast"),
        (group(more="ttl = 256"), "multicast[0].ttl: expected a number of at most 255"),
        (group(more="rotate_s = 59"), "multicast[0].rotate_s: expected a number of at least 60"),
        (group(more='key = "x"'), "multicast[0].key: unknown key, expected one of name, address, port, topics"),
        (group() + group(port=5008), "multicast[1].name: two groups are named 'wall'"),
        (group() + group("hall"), "multicast[1].port: an earlier group has 239.1.2.3:5007 already"),
    ],
)
def test_what_is_wrong_with_a_group_is_named_with_its_key(tmp_path: Path, bad: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(written(tmp_path, bad))
    assert complaint in str(refusal.value)


def test_a_group_needs_a_listener_with_tls(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"multicast\[0\]: no listener has tls, over which receivers get their keys"):
        load(written(tmp_path, group(), tls=""))
