"""`make inspect`: every request on both sides of a gateway, in the browser.

start  runs it
addon  is loaded by mitmweb
view   what it shows

tests/loadtest/test_inspector.py covers addon and start.
"""
