"""Programs that are measured.

process  one that serves: started, found ready, stopped, started again
servers  ours, and what could stand in their place
configs  configurations of the others
names    what all are called
jobs     one that runs to its end
memory   what processes and the machine use, from /proc
tokens   signed tokens, and the key set that checks them
debian   programs that Debian packages

Tests are in tests/loadtest/: test_servers.py covers names.
"""
