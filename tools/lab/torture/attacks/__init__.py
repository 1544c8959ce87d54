"""Attacks by one client on other clients and on the gateway."""
