"""The names under which the log keeps its consumers: what each kind begins with."""

SESSION, GROUP = "session/", "share/"
"""How the names of the consumers of sessions and of share groups begin."""

COMMANDS = "connector/"
"""Begins the name of the consumer of a connector's commands, before the connector's own name."""

BACKFILL = "backfill/"
"""Begins the name of the place of a route's backfill, before the route's own name."""

KEPT = "kept/"
"""Begins the name of the place up to which a route keeps nothing, before the route's own name. It is no consumer's."""

LOST = ""
"""The name of a row for consumers whose own row is corrupt: each of them goes on at the place of this row.

It is the oldest message that is left. The start removes the row, once every session has its cursor again.
"""
