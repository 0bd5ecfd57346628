"""The gRPC broker: devices dial in, lease measurement batches, report how they went."""
