"""`weir verify`: clients, faults and a history, and the question whether any promise was broken.

`plan` says what will happen (seeded), `fleet` has the real processes, `nemesis` does it to them.
`producers`, `readers` and `keepers` are the clients; each request and its outcome goes into the
history. What the streams really hold is read straight from the origin (`keepers.Keeper.audit`).
Pure, over the history alone: `timeline` sorts it, `check` finds violations, `availability` counts
what was refused, `verdict` puts it into words. `messages` are what is written: each says where it
belongs. `doors` is HTTP, `keyring` signs tokens, `run` is a whole run.
"""
