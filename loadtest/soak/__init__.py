"""`make soak`: half an hour of mixed load.

run    the servers and the crowd
judge  says whether anything grew, and how fast

tests/loadtest/test_soak.py covers run and judge.
"""
