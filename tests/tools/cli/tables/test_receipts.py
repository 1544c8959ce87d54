"""`holdfast cloud receipts`: what a broker lacks is published, acknowledged and retained, and no more."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.cloud.receipts.bare import NOON_MS, Bare
from tools.lab.testing.gateway import running_gateway
from tools.lab.testing.mosquitto import Mosquitto, mosquitto
from tools.lab.testing.ports import free_port
from wire.receipt import decode_landed, decode_receipt
