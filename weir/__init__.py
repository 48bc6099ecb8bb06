"""The `weir` command.

cli         the parser: the flags of every command
commands    what each command does, one module per command
edge        Envoy in front of the gateways: its configuration and its process
cluster     a cluster on one machine, and its status
client      reading streams from the command line, and showing what was read
parent      starts, watches and stops several serving processes
serve       what every serving process needs: its stop signal, file limit and address
exits       errors reported in one line, and exit codes
reference   writes docs/reference.md (`make docs`)

Tests are in tests/weir/, in the same rooms. tests/weir/commands/test_up.py also covers parent,
serve and exits; tests/docs/test_reference.py covers reference.
"""
