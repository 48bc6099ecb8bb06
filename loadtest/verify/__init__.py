"""`weir verify`: clients, faults and a history, and the question whether any promise was broken.

run        a whole run; `plan` says what will happen (seeded), `nemesis` does it
fleet      the real processes; `doors` is HTTP to them, `keyring` signs tokens
producers, readers, keepers   the clients; `lastlook` is what they do at the end
messages   what is written: each says where it belongs; `answers` what a reader takes from one
history    each request and its outcome, one line each

Pure, over the history alone:
timeline   sorts it
check      finds `violations`: `check_writes`, `check_answers`, `check_freshness`, `check_access`
completeness   what a history must show before silence means anything
availability   what was refused; not part of the verdict
verdict    puts it into words
"""
