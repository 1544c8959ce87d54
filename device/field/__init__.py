"""Life in the field: what a device does for people who cannot come to it with a cable.

Only a device that uses it loads `device.field.life`, which loads the rest as it is needed.
"""
