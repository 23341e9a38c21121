"""Strategies and the decision they make. Pure."""
