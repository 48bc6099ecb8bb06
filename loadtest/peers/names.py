"""How options, figures and tables call those who are compared."""

OURS, BEFORE = "ours", "before"
FILE, MEMORY = "node-file", "node-memory"
DURABLE = "file-durable"
NGINX, VARNISH, ENVOY, PLAIN_ENVOY = "nginx", "varnish", "envoy", "envoy-plain"
NODE, NCHAN = "node", "nchan"
REPLAY = "replay"
DUCK, GOACCESS, PYTHON = "duckdb", "goaccess", "python"
WORDS = {
    BEFORE: "before",
    FILE: "file",
    MEMORY: "memory",
    DURABLE: "file-durable",
    NGINX: "nginx",
    VARNISH: "Varnish",
    ENVOY: "Envoy",
    PLAIN_ENVOY: "plain Envoy",
    NODE: "Node",
    NCHAN: "nchan",
    REPLAY: "replay",
    DUCK: "DuckDB",
    GOACCESS: "goaccess",
    PYTHON: "Python",
}
