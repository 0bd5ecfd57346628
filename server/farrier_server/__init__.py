"""The server package: the REST API that users call, and the gRPC broker that devices connect to."""
