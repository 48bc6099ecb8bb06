"""HTTP serving shared by origin and gateway.

front        the connection and its server: fast path first, aiohttp for the rest
ordinary     aiohttp's connection with the changes that ours needs
listening    the port that clients reach, from its start to its drained end
exchange     how a service responds on a connection
heads        plain request heads, parsed fast
requests     headers and bodies of requests, within the limits of a service
encoding     response heads as bytes
http         headers that every response carries, the Date line; refusals
tls          the context of a server with a certificate; handshakes with a deadline
descriptors  logs a lack of file descriptors
metrics      counters for Prometheus
settings     layered configuration
sections     the sections that both services read
rustlog      `RUST_LOG` as a log level
logs         text or JSON on standard error
addresses    which addresses only this machine can reach
secret       comparing secrets in constant time
children     forked processes of one parent
workers      identical ones behind one port, restarted and drained
programs     third-party programs: found in packages, ended with us

Tests are in tests/wire/. test_front.py covers listening, ordinary, encoding and http,
test_handshakes.py tls, test_gathering.py requests, test_settings.py sections, test_workers.py
children; metrics, descriptors and secret are covered in tests/origin/ and tests/scenarios/,
programs in tests/weir/edge/.
"""
