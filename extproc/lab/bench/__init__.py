"""Benchmarks of the whole deployment on one machine, beside what others published."""
