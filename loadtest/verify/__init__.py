"""`weir verify`: clients, faults and a history, and the question whether any promise was broken.

run         a whole run; its history in a folder
plan        what will happen, made from a seed (pure)
nemesis     does it
fleet       the real processes
doors       HTTP to them
keyring     signs tokens
producers   clients that write
readers     clients that read
keepers     the owner of each stream
lastlook    what clients do at the end
messages    what is written, and what a reader takes from an answer (pure)
history     each request and its outcome, one line each
cluster     the same for a cluster of origins

Pure, over the history alone:

timeline    sorts it; what a broken promise looks like
check       finds violations
check_writes     lost, doubled, reordered writes
check_answers    answers that contradict what was written
check_freshness  answers from before their question
check_access     answers that a token had no right to
check_cluster    requests that hang, shards that stay away, broken forks
completeness     what a history must show before silence means anything
availability     what was refused; not part of the verdict
verdict          puts it into words

Tests are in tests/verify/, by module: messages, history, plan, fleet, doors, keyring, keepers,
check, check_cluster, completeness and availability. test_check.py also covers verdict, timeline,
check_writes, check_answers, check_freshness and check_access; test_verify.py and
test_planted_bugs.py run the rest: run, nemesis, producers, readers and lastlook.
"""
