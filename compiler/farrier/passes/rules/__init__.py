"""The rules of `simplify`: each rewrites one node, knowing what computes its inputs."""
