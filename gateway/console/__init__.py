"""The console: a page for people at /console/, and the little that it needs beside the streams.

service   what each address below /console/ answers; streams that all workers served lately
pages     the fixed files, read once
minting   tokens for development: whom one is signed for, and what it may say
figures   what all workers count, as one small JSON (pure)
page/     the files themselves, served as they are

The page needs no token; everything that it shows does, and is asked for by the browser at the
streams' own addresses with the token that a person gave it.

Tests are in tests/console/: test_service.py covers service, pages, minting and figures.
"""
