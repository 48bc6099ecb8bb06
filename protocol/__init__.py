"""The protocol shared by both sides of Weir. Pure: values in, values out, no I/O, no clock.

media       media types
names       paths, headers, fixed values
errors      ProtocolError: malformed input
clustermap  which node of a cluster serves which stream
paths       stream names from URLs; other paths for them, where configured
offsets     positions as tokens
cursors     the cursor of live responses
etags       entity tags and If-None-Match
bodies      checks of bodies, and their stored form
requests    headers and query to one value per operation
producers   idempotent producers: the verdict table
stream      a stream's state, its records, and its rules
replies     outcomes to status, headers, body
heads       headers of a reply to one value: the inverse
jsonmode    JSON bodies to stored bytes and back, halves of surrogate pairs included
nesting     where the messages of stored JSON end, in slices
timestamps  RFC 3339
state       messages of the State Protocol, and the resulting state
schemas     validation of entities against JSON Schemas
multipart   bootstraps, both directions
sse         event streams, both directions; the jitter of their rotation
accesslog   a line of the gateway's log

Tests are in tests/protocol/: errors, names and bodies in test_requests.py.
"""
