"""`make soak`: `run` has servers and crowd, `judge` says whether anything grew, by its `trend`."""
