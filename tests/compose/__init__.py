"""The compose stack: what is shipped is whole and agrees with itself. Nothing here needs Docker."""
