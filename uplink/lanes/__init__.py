"""The two lanes of a route with ``order = "live_first"``: what goes next, how fast the backfill goes, what joins it."""
