"""Noise for MQTT's decoders and for the serial link."""
