"""Envoy in front of the gateways: its configuration, and the process."""
