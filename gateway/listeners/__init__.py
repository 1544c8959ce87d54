"""Where clients come in: each listener turns its kind of line into ports that the broker serves."""
