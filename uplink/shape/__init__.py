"""What a route's rules make of its messages: which of them go out, and with which topic name, QoS and RETAIN."""

from uplink.shape.config import ShapeConfig
from uplink.shape.shaper import CannotShape
from uplink.shape.shaping import Shaping

__all__ = ["CannotShape", "ShapeConfig", "Shaping"]
