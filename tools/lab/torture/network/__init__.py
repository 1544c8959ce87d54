"""A network of gateways under faults of its lines and gateways, with subscribers that come and go."""
