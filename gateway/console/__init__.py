"""The console: a web page at /console/, and the few endpoints it needs besides streams.

service   the responses of each path below /console/; streams that all workers served lately
pages     the fixed files, read once
minting   development tokens: who may get one, and what it may contain
figures   the counters of all workers, as one small JSON (pure)
page/     the files themselves, served as they are

The page itself needs no token. The browser fetches everything it shows from the streams' own URLs,
with the user's token.

Tests are in tests/console/: test_service.py covers service, pages, minting and figures.
"""
