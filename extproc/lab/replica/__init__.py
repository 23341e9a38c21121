"""A simulated model server: vLLM's HTTP face and scheduler, with a latency model for the GPU."""
