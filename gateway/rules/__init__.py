"""The gateway's decisions: no I/O, no clock, no chance.

routes       what a request is about: mode, stream, part, action
credentials  where a request carries its token
claims       what a token must look like
access       principals, scopes and the actions they allow
challenges   refusals of tokens and scopes
freshness    what may be stored of an answer, and for how long
forwarding   headers to the origin and back, by allow-list
downstream   headers to clients and the caches in front of us
tails        live reads: who waits where, and what to do about it
window       the newest data of a tail, for readers who are a little late
"""
