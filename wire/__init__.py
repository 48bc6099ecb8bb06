"""What origin and gateway share of serving HTTP.

settings  layered configuration; sections are those that both read
logs      text or JSON on standard error
heads     plain request heads, parsed fast
front     the connection: fast path first, aiohttp for the rest
requests  headers and bodies of what aiohttp has parsed
encoding  response heads as bytes
http      what every response carries
tls       the context of a server with a certificate; handshakes are connections until they end
descriptors says when none are left
metrics   counters for Prometheus
children  forked processes of one parent
workers   equal ones behind one port, restarted and drained
"""
