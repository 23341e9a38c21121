"""What a routing decision costs: several ways through one Envoy, in one run."""
