"""The dialling end of a link: a route subscribes at its neighbour, and sends what the neighbour wants."""
