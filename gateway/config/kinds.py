"""The kinds of values that many keys of the configuration file have."""

from typing import Annotated, Literal

import msgspec

NAME_BYTES_MAX = 128
"""Of the gateway's name: a route's client identifier has both names, and is within ``wire.identity.NAME_BYTES_MAX``."""

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
WhenFull = Literal["reject_incoming", "discard_old", "flow_control"]
