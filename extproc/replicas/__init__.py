"""Who is in a pool and how it fares."""
