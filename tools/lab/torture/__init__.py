"""The commands of ``holdfast torture``: they cause faults and check that no message is lost or repeated."""
