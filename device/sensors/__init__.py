"""Sensor drivers, one a file. A driver is a class whose `sample()` returns a list of (name, unit, value).

Units are those registered for SenML. What cannot be had is raised, as `device.sensors.driver` says.
"""
