"""Simulated replicas, workloads and a local stack to try and measure the router with."""
