"""Envoy in front of the gateways. `envoy/envoy.json` is what these modules render.

    client ── TLS, h2 ──▶ Envoy: path, headers, token ── hash of the stream ──▶ one of the gateways

Envoy is a first check and a switch; the gateway decides. Whatever Envoy refuses, the gateway would
refuse in the same words, and whatever Envoy lets pass, the gateway checks again.

settings      what the configuration is made from
bootstrap     the whole configuration, and limits of the process
listeners     ports, TLS, HTTP settings, the access log, metrics
routes        which requests pass, to which gateway, and retries
tokens        the JWT filter, and the keys it uses
clusters      the gateways: balancing, health, ejection, retry budget
refusals      Envoy's own error responses
values        how Envoy spells addresses, durations and extensions
envoy         the process: start, readiness, drain
certificates  a self-signed certificate for development

tests/weir/edge/test_bootstrap.py checks settings, listeners, routes, tokens, clusters, refusals and
values; tests/envoy/ checks the running edge.
"""
