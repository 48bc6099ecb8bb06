"""What origin and gateway share of serving HTTP.

settings     layered configuration
sections     the sections that both services read
logs         text or JSON on standard error
rustlog      RUST_LOG, as the level of our log
front        the connection: fast path first, aiohttp for the rest
heads        plain request heads, parsed fast
requests     headers and bodies of what aiohttp has parsed
encoding     response heads as bytes
http         what every response carries
addresses    hosts, and which of them are loopback
secret       secrets, compared in constant time
tls          the context of a server with a certificate
handshakes   TLS handshakes count as connections until they end
descriptors  says when none are left
metrics      counters for Prometheus
children     forked processes of one parent
workers      equal ones behind one port, restarted and drained
"""
