"""The gRPC server, its health, admin pages, workers and drain."""
