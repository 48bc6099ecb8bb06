"""The gateway: tokens, cache, collapsing and fan-out in front of a Durable Streams origin.

The way in:

hits         the fast path: stored parts for known callers
handlers     requests that aiohttp had to parse, to the same door
door         every other request, in the one order of checks
guard        token, route and scopes of a request
admission    rates, and room for bodies
calls        one request on its way
entrance     builds the door and everything around it, and the port that leads to it

What a request becomes:

catchup      reads of stored parts, in the encoding that the client accepts
hubs         live reads: places readers at tails, and carries out what tails decide
passes       writes, buckets and everything else that goes to the origin unchanged
service      health, readiness and the console's pages
console      a web page, and the data it needs besides streams

The way out:

answers      sends every response, and owns the tasks that make them
heads        composes response heads
outcomes     how a request was answered: verdict, role, Cache-Status
records      the log line and the counters of a request
outgoing     large events and bodies that slow readers have not received yet
spool        unread parts of large responses for slow clients, on disk

The cache:

cache        reads from the first level, the second, or the origin
reads        who asks for a part of a stream, and where the bytes came from
store        the first level: stored parts, bounded by bytes; all that is held of streams
entries      a stored part and its forms
encodings    which encoding a client gets; the forms of an entry, each compressed once
flights      one running fetch per key, shared
streams      what is known of a stream: incarnation, expiry, beginning
rediscache   the second level, shared by gateways
redislink    the connection to Redis

Purges:

purges       the owner of every purge, local or announced by another gateway
notices      announces purges to other gateways, and receives theirs
redisnotices  carries notices between machines
localnotices  carries notices between the workers of one machine
cdn          tags and purges for CDNs

Live reads:

hub          asks the origin for one tail
replays      catch-up reads for live readers that are not at the tail
longpolls    a waiting long-poll
ssereaders   an event stream: its events, heartbeats, rotation and end
deliveries   one entry for many readers, and as the events of each
watch        ends live readers whose token is withdrawn

The origin:

upstream     the client: whose turn it is, and what became of a request
origins      the nodes of a cluster: each request goes to the owner of its stream
mapwatch     learns the map of the cluster
links        one origin or node: its connections, its breaker, attempts and retries
asking       requests, checked responses, and how requests fail
connections  connections to the origin
breaker      the circuit breaker
slots        origin connections, shared fairly between subjects

Tokens:

tokens       JWTs to principals
jwks         the keys
devkeys      development keys
revoked      tokens that an operator has revoked

All of it:

rules        pure decisions
config       every key
app          one worker: wired, started, drained
backends     files, origin, Redis, keys, CDN: opened in order
admin        the admin port; what workers tell each other
accesslog    log files
metrics      counters of requests
gauges       everything else that is measured
exposition   metrics of several workers as one text
limits       rates and shares of one subject
tasks        tasks with an owner

Tests are in tests/gateway/, with the parts wired together in tests/scenarios/ and attacked in
tests/hostile/gateway/. test_cache.py covers catchup and reads; test_hub.py hubs, replays,
longpolls, ssereaders and deliveries; test_upstream.py links and asking; test_origins.py mapwatch;
test_notices.py redisnotices and localnotices; test_rediscache.py redislink. app, backends,
entrance, calls, answers, passes, service, heads, records, gauges and tasks are tested end to end,
in tests/scenarios/.
"""
