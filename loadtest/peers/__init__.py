"""Programs that are measured.

process  one that serves: started, found ready, stopped, started again
servers  ours, and what could stand in their place; `configs` of those, `names` for all
jobs     one that runs to its end
memory   what processes and the machine use, from /proc
tokens   signed tokens, and the key set that checks them
debian   programs that Debian packages
"""
