"""The commands of ``holdfast lab torture``: they cause faults and check that no message is lost or repeated."""
