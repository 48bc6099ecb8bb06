"""Load tests: what the servers do under load, always as a ratio to something.

`bench` is the command; `suites` its comparisons; `scenarios` what is measured of the origin,
`gateway_scenarios` of the gateway, `state_scenarios` of a compacted State stream, which `changes`
writes, `analytics_scenarios` of the Spark pipeline over `accesslogs`, beside `duck`; `runner` how
they take turns; `peers` and `proxies` the servers, `jobs` programs that end; `wrk`, `client`,
`exchange`, `live`, `paced` and `catchup` the load; `tokens` what it shows at the door; `memory`
looks into /proc; `debian` installs. `faultproxy` starts mitmproxy with `faults`, `inspector` with
`inspecting`: both run in an environment of its own. `verify` is no load test but `weir verify`.
Pure: `replies`, `metrics`, `targets`, `report`, `proxyconfigs`, `changes`, `errors`, `faultplan`,
`inspectview`.
"""
