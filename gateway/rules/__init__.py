"""The gateway's decisions: no I/O, no clock, no randomness.

routes       the meaning of a request: mode, stream, part, action
credentials  where a request carries its token
claims       what a token must look like
access       principals, scopes and the actions they allow
challenges   error responses for tokens and scopes
freshness    what may be stored of an answer, and for how long
forwarding   headers to the origin and back, by allow-list
downstream   headers to clients and CDNs
nodes        which maps and nodes of a cluster of origins to believe
tails        live reads: who waits where, and what to do about it
window       the newest data of a tail, for readers that are slightly behind
"""
