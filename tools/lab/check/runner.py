"""Runs many checks at once; they share no client identifiers and no topics."""

import asyncio
import os
import socket

from tools.lab.check.client import Client
from tools.lab.check.outcome import Failed, NoAccount, NoBroker, Outcome, Skipped
from tools.lab.check.subject import Address, Broker
from tools.lab.check.suite import VERSIONS, Check
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Connack
from wire.reasons import BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED, SUCCESS, describe

AT_ONCE = 24
CHECK_TIMEOUT_S = 45.0


async def knock(address: Address) -> None:
    """Checks that a broker accepts this client, over MQTT 5 or 3.1.1.

    Raises:
        NoBroker: nothing there does.
    """
    place = f"{address.host}:{address.port}"
    for level in (MQTT_5, MQTT_3_1_1):
        broker = Broker(address, level)
        try:
            client = await broker.open()
            await client.send(broker.connect_packet())
            answer = await client.first_packet()
        except Failed as failure:
            said = failure.came
        except OSError as error:  # a timeout is one too
            if error.errno and not isinstance(error, socket.gaierror):
                reason = os.strerror(error.errno)
            else:
                reason = error.strerror or "no answer"
            raise NoBroker(f"no broker at {place}: {reason}") from error
        else:
            if isinstance(answer, Connack) and answer.reason_code == SUCCESS:
                return
            if isinstance(answer, Connack) and answer.reason_code in (BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED):
                raise NoBroker(f"the broker at {place} refuses this login: {describe(answer.reason_code)}")
            said = describe(answer.reason_code) if isinstance(answer, Connack) else repr(answer)
        finally:
            await broker.clean_up()
    raise NoBroker(f"no MQTT broker at {place}: to a CONNECT came {said}")


async def run(checks: list[Check], address: Address) -> list[Outcome]:
    """Returns the checks' outcomes, in their order.

    Raises:
        OSError: no server listens at the address.
    """
    offered = await _announced(address)
    places = asyncio.Semaphore(AT_ONCE)

    async def one(check: Check) -> Outcome:
        async with places:
            return await run_one(check, Broker(address, VERSIONS[check.version], offered))

    return list(await asyncio.gather(*map(one, checks)))


async def run_one(check: Check, broker: Broker) -> Outcome:
    """Returns one check's outcome; an unexpected end of a connection is a failure of the broker."""
    named = (check.name, check.version, check.clauses)
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check.function(broker, *check.arguments)
    except Failed as failure:
        return Outcome(*named, "fail", failure.expected, failure.came)
    except Skipped as reason:
        return Outcome(*named, "skip", came=str(reason))
    except NoAccount as reason:
        return Outcome(*named, "unchecked", came=str(reason))
    except TimeoutError:
        return Outcome(*named, "fail", "an end", f"none within {CHECK_TIMEOUT_S:.0f} s")
    except OSError as error:
        return Outcome(*named, "fail", "a connection", str(error))
    finally:
        await broker.clean_up()
    return Outcome(*named)


async def _announced(address: Address) -> dict[int, object]:
    """Returns the properties of the broker's CONNACK; empty if it does not support MQTT 5."""
    broker = Broker(address, MQTT_5)
    try:
        client: Client = await broker.connect()
        return dict(client.connack.properties)
    except Failed:
        return {}
    finally:
        await broker.clean_up()
