"""The server role: the REST API that users call and the gRPC broker that devices dial."""
