"""The commands of `weir`, one module each."""
