"""``holdfast network check`` on files of gateways."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.tools.cli.network.networks import TRUSTING, gateway, ring, route, write
from tools.cli.main import make_app


def check(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), ["network", "check", *arguments])


CHAIN = {"A": gateway("A", route("M", "M")), "M": gateway("M", route("B", "B")), "B": gateway("B")}


def test_a_chain_is_right(tmp_path: Path) -> None:
    done = check(*write(tmp_path, CHAIN))
    assert (done.exit_code, done.output) == (0, "gateways: 3, links: 2, faults: 0, warnings: 0\n")


def test_a_ring_is_a_fault_at_its_line(tmp_path: Path) -> None:
    done = check(*write(tmp_path, ring("A", "B", "C")))
    assert done.exit_code == 1
    fault, counts = done.output.splitlines()
    assert fault.startswith(f"{tmp_path}/C.toml:12: route[0].neighbour: two paths from ")
    assert counts == "gateways: 3, links: 3, faults: 1, warnings: 0"


def test_the_result_is_a_json_object(tmp_path: Path) -> None:
    files = write(tmp_path, ring("A", "B", "C"))
    done = check("--json", *files)
    found = json.loads(done.output)
    assert (done.exit_code, found["gateways"], found["links"], found["holds"]) == (1, 3, 3, False)
    (finding,) = found["findings"]
    assert (finding["file"], finding["line"], finding["key"]) == (files[2], 12, "route[0].neighbour")
    assert finding["is_warning"] is False and "two paths" in finding["text"]


def test_warnings_alone_end_with_0(tmp_path: Path) -> None:
    done = check(*write(tmp_path, {"A": gateway("A", route("M", "M", limit=""))}))
    assert done.exit_code == 0
    assert done.output.count("warning: ") == 2 and done.output.endswith(
        "gateways: 1, links: 1, faults: 0, warnings: 2\n"
    )


def test_what_cannot_be_read_ends_with_2_and_all_of_it_is_named(tmp_path: Path) -> None:
    files = write(tmp_path, CHAIN | {"B": 'name = 1\n[store]\npath = "x"\n'})
    done = check(*files, str(tmp_path / "none.toml"))
    assert done.exit_code == 2
    assert "B.toml:1: name: expected text, got a number" in done.stderr
    assert "none.toml: No such file" in done.stderr
    (tmp_path / "M.acl").write_text("allow everything")
    assert "M.acl:1: expected 'allow WHO ACTIONS WHAT'" in check(*files[:2]).stderr


def test_rules_that_are_not_there_are_a_warning(tmp_path: Path) -> None:
    files = write(tmp_path, CHAIN)
    (tmp_path / "M.acl").unlink()
    done = check(*files)
    assert done.exit_code == 0
    assert f"M.toml:2: acl: warning: {tmp_path}/M.acl is not here: its rules were not looked at" in done.output


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        ("", ["neighbour A", "identify *", "publish '#'", "subscribe '#'"]),
        ("allow site neighbour *\nallow site identify *\nallow site publish,subscribe x", []),
        (TRUSTING.replace("neighbour *", "neighbour B"), ["neighbour A"]),
        (TRUSTING.replace("allow * identify *", ""), ["identify *"]),
        ("deny * identify A\n" + TRUSTING, ["identify *"]),
        (TRUSTING.replace("publish,subscribe", "subscribe"), ["publish '#'"]),
        (TRUSTING.replace("publish,subscribe", "publish"), ["subscribe '#'"]),
        (TRUSTING + "allow * connect device-*", ["connect A-to-m"]),
        (TRUSTING.replace("allow *", "allow other"), ["neighbour A", "identify *", "publish '#'", "subscribe '#'"]),
    ],
)
def test_rules_that_a_neighbour_needs_are_named(tmp_path: Path, rules: str, missing: list[str]) -> None:
    files = write(tmp_path, {"A": gateway("A", route("M", "M")), "M": gateway("M")})
    (tmp_path / "M.acl").write_text(rules)
    done = check(*files)
    assert done.exit_code == (1 if missing else 0)
    lines = "; ".join(f"allow site {one}" for one in missing)
    text = f"to add in {tmp_path}/M.acl ahead of rules that deny it: {lines}\n"
    assert (text in done.output) == bool(missing)


def test_filters_that_are_always_carried_need_a_rule_each(tmp_path: Path) -> None:
    summary = '[network]\nsummary = ["alarms/#", "orders/#"]'
    carried = route("M", "M", limit='max_bytes = 1000\nfilters = ["site/#", "plant/+/x"]')
    files = write(tmp_path, {"A": gateway("A", summary, carried), "M": gateway("M")})
    (tmp_path / "M.acl").write_text("allow site neighbour A\nallow * identify *\nallow * publish,subscribe +/1/x\n")
    assert "it: allow site subscribe 'alarms/#'" not in check(*files).output
    (tmp_path / "M.acl").write_text("allow site neighbour A\nallow * identify *\nallow * publish,subscribe site/x\n")
    missing = "allow site publish plant/+/x; allow site subscribe 'alarms/#'; allow site subscribe 'orders/#'\n"
    assert f"it: {missing}" in check(*files).output


IN_STREAM = ["publish '$SYS/STREAM/one/#'", "subscribe '$SYS/STREAM/one/#'"]


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        ("", IN_STREAM),
        ("allow * publish,subscribe $SYS/#", IN_STREAM),
        ("allow * publish,subscribe $SYS/STREAM/two/#", IN_STREAM),
        ("allow * publish $SYS/STREAM/one/a", ["subscribe '$SYS/STREAM/one/#'"]),
        ("allow * publish,subscribe $SYS/STREAM/+/a", []),
    ],
)
def test_a_stream_that_a_link_carries_needs_rules_of_its_own(tmp_path: Path, rules: str, missing: list[str]) -> None:
    one, two = ('[[stream]]\nname = "one"', '[[stream]]\nname = "two"')
    files = write(tmp_path, {"A": gateway("A", one, route("M", "M")), "M": gateway("M", one, two)})
    (tmp_path / "M.acl").write_text(TRUSTING + rules)
    done = check(*files)
    assert done.exit_code == (1 if missing else 0)
    lines = "; ".join(f"allow site {one}" for one in missing)
    assert (f"ahead of rules that deny it: {lines}\n" in done.output) == bool(missing)


def test_a_gateway_without_rules_allows_no_neighbour(tmp_path: Path) -> None:
    files = write(tmp_path, {"A": gateway("A", route("M", "M")), "M": gateway("M").replace('acl = "M.acl"', "")})
    done = check(*files)
    assert done.exit_code == 1
    assert (
        "to add in a file of rules ahead of rules that deny it: allow site neighbour A; allow site identify *"
        in done.output
    )


def test_the_user_of_a_certificate_is_not_known(tmp_path: Path) -> None:
    tls = '[route.tls]\ncertificate = "a.pem"\nkey = "a.key"'
    secured = route("M", "M").replace("mqtt://", "mqtts://") + tls
    done = check(*write(tmp_path, {"A": gateway("A", secured), "M": gateway("M")}, rules=""))
    assert done.exit_code == 0
    assert "route[0].tls.certificate: warning: it names the user at 'M'" in done.output
