"""`make inspect`: `start` runs it, `addon` is what mitmweb loads, `view` what it shows."""
