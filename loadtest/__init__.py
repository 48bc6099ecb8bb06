"""Load tests: what the servers do under load, always as a ratio to something.

`bench` is the command; `suites` its comparisons; `scenarios` what is measured of the origin,
`gateway_scenarios` of the gateway, `state_scenarios` of a compacted State stream, which `changes`
writes; `runner` how they take turns; `peers` and `proxies` the servers; `wrk`, `client`,
`exchange`, `live`, `paced` and `catchup` the load; `tokens` what it shows at the door; `memory`
looks into /proc; `debian` installs.
Pure: `replies`, `metrics`, `targets`, `report`, `proxyconfigs`, `changes`, `errors`.
"""
