"""The `weir` command."""
