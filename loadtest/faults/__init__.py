"""A proxy that does harm.

plan   decides, from a seed
addon  does it, in mitmproxy
proxy  starts mitmproxy

tests/loadtest/test_faults.py covers addon and proxy.
"""
