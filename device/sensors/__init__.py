"""Sensor drivers, one in each file. A driver is a class whose `sample()` returns a list of (name, unit, value).

Units are those registered for SenML. A driver raises an exception if it cannot read; see `device.sensors.driver`.
"""
