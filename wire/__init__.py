"""What origin and gateway share of serving HTTP.

front        the connection and its server: fast path first, aiohttp for the rest
ordinary     aiohttp's connection with the changes that ours needs
exchange     how a service answers on a connection
gathering    a request whose body comes in pieces
heads        plain request heads, parsed fast
requests     headers and bodies of requests that aiohttp has parsed
limits       what a client may send, and how long it may take
encoding     response heads as bytes
dates        the Date line of response heads
http         headers that every response carries; refusals
tls          the TLS context of a server with a certificate
handshakes   TLS handshakes count as connections and have a deadline
descriptors  logs a lack of file descriptors
metrics      counters for Prometheus
settings     layered configuration
sections     the sections that both services read
rustlog      `RUST_LOG` as a log level
logs         text or JSON on standard error
addresses    which addresses only this machine can reach
secret       comparing secrets in constant time
children     forked processes of one parent
workers      equal ones behind one port, restarted and drained
programs     other people's programs: found in packages, ended with us

Tests are in tests/wire/. test_front.py covers ordinary, limits, encoding, dates, http and tls,
test_settings.py sections, test_workers.py children; metrics, descriptors and secret are covered in
tests/origin/ and tests/scenarios/, programs in tests/weir/edge/.
"""
