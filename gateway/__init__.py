"""The gateway: tokens, cache, collapsing and fan-out in front of a Durable Streams origin.

The way of a request:

door       every request: limits, path, token, scope, rate; then one of the next three
cache      catch-up reads, snapshots, bootstraps: first level, second level, origin
hubs       live reads: each reader to its stream's hub, with one upstream tail and a window
passes     writes, buckets and whatever else goes to the origin as it is
spool      what slow clients have yet to read of large answers, on disk
answers    the way out: responses as bytes, log lines, counters
handlers   requests that aiohttp had to parse, to the same door
calls      one request on its way

What they stand on:

rules      pure decisions: routes, scopes, credentials, claims, freshness, headers both ways
tokens     JWTs to principals; jwks keeps the keys, devkeys makes some; watch ends live readers
entries    a stored answer and its forms; store keeps them, flights fetch them, streams knows more
readers    a waiting long-poll, an event stream; outgoing has the large events they have yet to take
upstream   the client to the origin; breaker decides when to leave it alone, slots whose turn it is
rediscache the second level; revoked tokens; redislink is the connection, notices the purges
cdn        tags and purges for caches in front of us
limits     rates and shares, bodies the room for bodies; encodings compress; tasks have an owner
accesslog  log files; metrics, exposition and admin tell how it goes
console    a page for people, and what it asks for beside streams
config     every key; app wires it all
"""
