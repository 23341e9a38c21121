"""What the shared store takes for a decision: routers alone, without Envoy and gRPC."""
