"""The benchmarks of networks of gateways, beside chains of NATS leaf nodes and mosquitto's bridge."""
