"""A proxy that does harm: `plan` decides, `addon` does it in mitmproxy, `proxy` starts that."""
