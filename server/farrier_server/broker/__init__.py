"""The gRPC broker. Devices connect to it, lease measurement batches, and report the results."""
