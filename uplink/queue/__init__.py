"""What the store has for one route: the messages that wait, what the neighbour wants, and how the route is doing."""
