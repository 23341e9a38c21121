"""A pool in virtual time: simulated engines, and the code that routes, on one clock."""
