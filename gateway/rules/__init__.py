"""The gateway's decisions as pure functions: no I/O, no clock, no chance."""
