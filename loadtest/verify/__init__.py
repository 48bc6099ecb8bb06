"""`weir verify`: clients, faults and a history, and the question whether any promise was broken.

run         a whole run
plan        what will happen, made from a seed (pure)
nemesis     does it
fleet       the real processes
doors       HTTP to them
keyring     signs tokens
producers   clients that write
readers     clients that read
keepers     the owner of each stream
lastlook    what clients do at the end
messages    what is written: each message says where it belongs
answers     what a reader takes from an answer
history     each request and its outcome, one line each
recorded    a history in its folder

Pure, over the history alone:

timeline    sorts it; what a broken promise looks like
check       finds violations
check_writes     lost, doubled, reordered writes
check_answers    answers that contradict what was written
check_freshness  answers from before their question
check_access     answers that a token had no right to
completeness     what a history must show before silence means anything
availability     what was refused; not part of the verdict
verdict          puts it into words

Tests are in tests/verify/, by module: answers, availability, check, completeness, fleet, history
and plan. test_check.py also covers verdict, check_writes, check_answers, check_freshness,
check_access, timeline and messages; test_verify.py runs the rest: run, nemesis, doors,
keyring, producers, readers, keepers, lastlook and recorded.
"""
