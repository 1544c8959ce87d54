"""A power-fail-safe store of messages on raw flash. Format: `SPEC.md`. Design: docs/explanation/flash-store.md.

Other folders import only from these modules; a board loads only what it uses.

    flash_store.log               Log: append, acknowledge, messages
    flash_store.kept              KeepingLog: a Log whose acknowledged messages stay while there is room
    flash_store.incoming          Incoming: QoS 2 messages to the device, until they are released
    flash_store.errors            StoreError and those below it
    flash_store.gaps              reasons of gaps
    flash_store.block_device      operation numbers of the block-device protocol
    flash_store.sector            sector headers
    flash_store.devices.esp32     a data partition of an ESP32
    flash_store.devices.file      a file
    flash_store.devices.ram       RAM
    flash_store.devices.rp2       the flash of an RP2040 or RP2350
    flash_store.devices.spi_nor   an external chip at an SPI bus
"""
