"""A store as JSON has it."""

from typing import Any

from tools.flash.store import Message, Sector, Store

EXCERPT_BYTES = 48


def as_json(store: Store) -> dict[str, Any]:
    return {
        "epoch": store.epoch,
        "granule": store.granule,
        "sector_size": store.sector_size,
        "boot_id": store.boot_id,
        "last_id": store.last_id,
        "wear": wear(store),
        "sectors": [sector_fields(sector) for sector in store.sectors],
        "messages": [_message_fields(message) for message in store.messages.values()],
        "acknowledged": sorted(store.acknowledged),
        "settings": {key: excerpt(setting.value) for key, setting in sorted(store.settings.items())},
        "received": store.received,
        "gaps": [vars(gap) for gap in store.gaps],
        "bad_records": [vars(bad) for bad in store.bad_records],
        "next_mount": vars(store.next_mount),
    }


def sector_fields(sector: Sector) -> dict[str, Any]:
    return {
        "number": sector.number,
        "state": sector.state,
        "problem": sector.problem,
        "version": sector.free.version if sector.free else None,
        "erases": sector.free.erase_count if sector.free else None,
        "sector_seq": sector.sector_seq,
        "records": sector.records if sector.sector_seq else None,
        "live": sector.live if sector.sector_seq else None,
    }


def wear(store: Store) -> dict[str, int]:
    """Erases of the sectors that tell theirs."""
    counts = [sector.free.erase_count for sector in store.sectors if sector.free]
    return {"least": min(counts), "most": max(counts), "all": sum(counts)}


def excerpt(content: bytes) -> str:
    """The first bytes of a payload or value: as text where they are printable, else in hex."""
    start = content[:EXCERPT_BYTES]
    more = "…" if len(content) > EXCERPT_BYTES else ""
    text = start.decode(errors="ignore" if more else "replace")  # the cut may have halved a character
    return (text if text.isprintable() and "\ufffd" not in text else f"0x{start.hex()}") + more


def _message_fields(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "qos": message.qos,
        "retain": message.retain,
        "pubrec": message.pubrec,
        "topic": message.topic,
        "size": len(message.payload),
        "payload": excerpt(message.payload),
        "moved": message.moved,
        "offset": message.offset,
    }
