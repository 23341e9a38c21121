"""Faults under traffic, a drill for each: what fails, what arrives, and when all is well again."""
