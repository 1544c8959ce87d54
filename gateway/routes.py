"""What a route uses of the gateway. The store, the delivery engine and links have faces of their own."""

from gateway.auth.permissions import Topics
from gateway.config.errors import Checked, ConfigSource
from gateway.config.kinds import NAME_BYTES_MAX, Count, NonEmpty
from gateway.config.load import Table, beside, check_readable
from gateway.config.network import Hops, Mode, SelectConfig, ZoneName, errors_in_filter
from gateway.connection.intake.publish_answers import PublishAnswers
from gateway.connection.intake.publish_in import Intake, Realtime
from gateway.connection.intake.publish_rules import PublishRules
from gateway.connection.services import Services
from gateway.counters import Counters, LinkStatus, RouteAbout, RouteState
from gateway.errors import ListenError
from gateway.filters.filter_tree import FilterTree
from gateway.loop.pace import Shift, Slice
from gateway.loop.signals import Signal
from gateway.message import Message, plain_properties
from gateway.selectors import Selector
from gateway.sessions.copies import Copies
from gateway.subscriptions import Subscription
from gateway.topic_memory import remember

__all__ = [
    "NAME_BYTES_MAX",
    "Checked",
    "ConfigSource",
    "Copies",
    "Count",
    "Counters",
    "FilterTree",
    "Hops",
    "Intake",
    "LinkStatus",
    "ListenError",
    "Message",
    "Mode",
    "NonEmpty",
    "PublishAnswers",
    "PublishRules",
    "Realtime",
    "RouteAbout",
    "RouteState",
    "SelectConfig",
    "Selector",
    "Services",
    "Shift",
    "Signal",
    "Slice",
    "Subscription",
    "Table",
    "Topics",
    "ZoneName",
    "beside",
    "check_readable",
    "errors_in_filter",
    "plain_properties",
    "remember",
]
