"""Reading streams from the command line.

stream    reads one stream from its start or its bootstrap, then follows it
replay    from messages to state: which messages count
access    the token and the access key that are sent
view      a state and its changes as lines of text or JSON
escapes   text that is safe to print on a terminal

replay is tested with the command that uses it, in tests/weir/commands/test_state.py.
"""
