"""Connectors read serial devices that speak no MQTT, and store what they say as messages.

`line`, `nmea` and `modbus` are codecs without input and output. `bus` owns a line that many units share, `poller`
keeps the times of polls, `keeping` stores readings with a mark up to which all was read, and tells gaps.
"""
