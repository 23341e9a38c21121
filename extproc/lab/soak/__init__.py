"""Traffic for long, to see what grows."""
