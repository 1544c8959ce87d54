"""A gateway's route to the next broker under faults of line, processes, disk, clock and sessions."""
