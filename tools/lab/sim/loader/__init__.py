"""The ROM loader of a simulated ESP32: the maker's serial protocol, as the real esptool speaks it.

The protocol is that of Espressif's page "Serial Protocol"
(docs.espressif.com/projects/esptool/en/latest/esp32/advanced-topics/serial-protocol.html).
"""
