"""Passwords, and enhanced authentication with SCRAM-SHA-256 (sections 3.1.4, 3.15 and 4.12); these need an account."""

from typing import Any

from tools.lab.check.client import Client
from tools.lab.check.outcome import Failed, NoAccount, Skipped
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from tools.lab.testing.scram import METHOD, Scram
from wire import properties as p
from wire import reasons
from wire.codec.packets import Auth, Connack, Connect, Pingreq

CONTINUE, AGAIN = reasons.CONTINUE_AUTHENTICATION, reasons.RE_AUTHENTICATE
REFUSED = (reasons.NOT_AUTHORIZED, reasons.BAD_USER_NAME_OR_PASSWORD)


def account(broker: Broker) -> tuple[str, bytes]:
    if broker.address.user is None or broker.address.password is None:
        raise NoAccount("no user and password were given to log in with")
    return broker.address.user, broker.address.password


def auth(reason_code: int, data: bytes, method: str = METHOD) -> Auth:
    return Auth(reason_code, {p.AUTHENTICATION_METHOD: method, p.AUTHENTICATION_DATA: data})


async def begin(broker: Broker, scram: Scram, properties: dict[int, Any] | None = None) -> tuple[Client, bytes]:
    """A client that has sent its first message of SCRAM, and the server's."""
    client = await broker.open()
    method = {p.AUTHENTICATION_METHOD: METHOD, p.AUTHENTICATION_DATA: scram.first()}
    await client.send(Connect(broker.client_id(), True, properties={**method, **(properties or {})}))
    answer = await client.first_packet()
    if isinstance(answer, Connack) and answer.reason_code in (reasons.BAD_AUTHENTICATION_METHOD, *REFUSED):
        raise Skipped(f"the broker does not offer {METHOD}")
    return client, expect_auth(answer, CONTINUE)


def expect_auth(packet: object, reason_code: int) -> bytes:
    """The data of an AUTH with this reason code, and with our method."""
    method = packet.properties.get(p.AUTHENTICATION_METHOD) if isinstance(packet, Auth) else None
    if not isinstance(packet, Auth) or packet.reason_code != reason_code or method != METHOD:
        raise Failed(f"AUTH 0x{reason_code:02x} with the method {METHOD}", repr(packet))
    data: bytes = packet.properties.get(p.AUTHENTICATION_DATA, b"")
    return data


def proof(scram: Scram, server_first: bytes) -> bytes:
    try:
        return scram.final(server_first)
    except ValueError as error:
        raise Failed("a server's first message of SCRAM", f"{server_first!r}: {error}") from error


async def admitted(broker: Broker) -> Client:
    """A client that was let in by SCRAM.

    Skips the check where the broker refuses the account's own password in this way: a broker may conceal from clients
    which accounts have keys for SCRAM, as ours does.
    """
    scram = Scram(*account(broker))
    client, server_first = await begin(broker, scram)
    await client.send(auth(CONTINUE, proof(scram, server_first)))
    answer = await client.first_packet()
    if isinstance(answer, Connack) and answer.reason_code in REFUSED:
        raise Skipped(f"the broker does not let this account log in by {METHOD}")
    client.put_back(answer)
    connack = await client.expect(Connack, reason_code=0)
    if connack.properties.get(p.AUTHENTICATION_METHOD) != METHOD:
        raise Failed(f"CONNACK with the method {METHOD}", repr(connack))
    if not scram.proves(connack.properties.get(p.AUTHENTICATION_DATA, b"")):
        raise Failed("CONNACK with the server's signature", repr(connack))
    return client


async def expect_turned_away(client: Client, *reason_codes: int) -> None:
    """The broker refuses: the connection closes without being accepted, and no DISCONNECT comes before a CONNACK."""
    await client.expect_closed()
    for packet in client.received:
        refused = isinstance(packet, Connack) and packet.reason_code in (*reason_codes, *REFUSED)
        if not (refused or isinstance(packet, Auth)):
            raise Failed("CONNACK with a refusal, or an end without a word", repr(packet))


@check(v3="3.2.2-4 3.2.2-5", v5="3.1.4-2 3.2.2-6 3.2.2-7 4.13.2-1")
async def a_wrong_password_is_refused(broker: Broker) -> None:
    user, password = account(broker)
    client = await broker.open()
    await client.send(
        Connect(broker.client_id(), True, 0, user, password + b"!", protocol_level=broker.level), Pingreq()
    )
    await expect_turned_away(client)


@check(v5="4.12.0-2 4.12.0-5 3.15.2-1 3.2.0-1")
async def a_client_that_proves_its_password_is_accepted(broker: Broker) -> None:
    client = await admitted(broker)
    await client.ping()


@check(v5="4.12.0-4 3.14.0-1")
async def a_client_that_proves_another_password_is_refused(broker: Broker) -> None:
    user, password = account(broker)
    scram = Scram(user, password + b"!")
    client, server_first = await begin(broker, scram)
    await client.send(auth(CONTINUE, proof(scram, server_first)))
    await expect_turned_away(client)


@check(v5="3.1.2-30 3.14.0-1 3.2.0-1")
async def anything_but_an_auth_before_the_connack_is_refused(broker: Broker) -> None:
    client, _ = await begin(broker, Scram(*account(broker)))
    await client.send(Pingreq())
    await expect_turned_away(client, reasons.PROTOCOL_ERROR)


@check(v5="4.12.0-3 3.14.0-1 4.13.1-1")
async def an_answer_with_another_reason_code_is_refused(broker: Broker) -> None:
    scram = Scram(*account(broker))
    client, server_first = await begin(broker, scram)
    await client.send(auth(AGAIN, proof(scram, server_first)))
    await expect_turned_away(client, reasons.PROTOCOL_ERROR)


@check(v5="4.12.0-5 3.14.0-1")
async def an_answer_with_another_method_is_refused(broker: Broker) -> None:
    scram = Scram(*account(broker))
    client, server_first = await begin(broker, scram)
    await client.send(auth(CONTINUE, proof(scram, server_first), "SCRAM-SHA-1"))
    await expect_turned_away(client, reasons.PROTOCOL_ERROR, reasons.BAD_AUTHENTICATION_METHOD)


@check(v5="4.12.1-1 4.12.0-2 4.12.0-5 3.15.2-1")
async def a_client_may_prove_its_password_again(broker: Broker) -> None:
    client = await admitted(broker)
    scram = Scram(*account(broker))
    await client.send(auth(AGAIN, scram.first()))
    server_first = expect_auth(await client.expect(Auth), CONTINUE)
    await client.ping()  # the connection goes on meanwhile
    await client.send(auth(CONTINUE, proof(scram, server_first)))
    if not scram.proves(expect_auth(await client.expect(Auth), reasons.SUCCESS)):
        raise Failed("AUTH 0x00 with the server's signature", repr(client.received[-1]))


@check(v5="4.12.1-2")
async def a_wrong_proof_later_closes_the_connection(broker: Broker) -> None:
    client = await admitted(broker)
    user, password = account(broker)
    scram = Scram(user, password + b"!")
    await client.send(auth(AGAIN, scram.first()))
    server_first = expect_auth(await client.expect(Auth), CONTINUE)
    await client.send(auth(CONTINUE, proof(scram, server_first)))
    await client.expect_closed(*REFUSED)


@check(v5="4.12.1-1 4.13.1-1")
async def another_method_later_closes_the_connection(broker: Broker) -> None:
    client = await admitted(broker)
    await client.send(auth(AGAIN, b"", "SCRAM-SHA-1"))
    await client.expect_closed(reasons.PROTOCOL_ERROR, reasons.BAD_AUTHENTICATION_METHOD, reasons.NOT_AUTHORIZED)


@check(v5="3.15.2-2 3.15.2-3 3.1.2-24 3.1.2-29")
async def what_an_auth_says_besides_fits_and_is_wanted(broker: Broker) -> None:
    largest = 256
    small = {p.MAXIMUM_PACKET_SIZE: largest, p.REQUEST_PROBLEM_INFORMATION: 0}
    client, _ = await begin(broker, Scram(*account(broker)), small)
    (answer,) = client.received
    reasons_given = isinstance(answer, Auth) and {p.REASON_STRING, p.USER_PROPERTY} & answer.properties.keys()
    if len(answer.encode()) > largest or reasons_given:
        raise Failed(f"an AUTH of {largest} bytes at most, without reasons", repr(answer))
