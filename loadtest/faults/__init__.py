"""A proxy that does harm: `plan` decides, `addon` carries it out in mitmproxy, `proxy` starts it."""
