"""What senders call the times, names, qualities and units of their values, where no standard decides."""
