"""A route's messages over one connection: what is in flight, what the acknowledgements mean, and what goes again."""
