"""Values by topic filter, and which filters match a topic name, cover one another or overlap."""
