"""Reading and writing streams from the command line."""
