"""``holdfast lab torture sensors``: drivers of sensors, and what chips and lines do to them."""
