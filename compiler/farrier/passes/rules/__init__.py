"""The rules of `simplify`: each rewrites one node, and may inspect the nodes that compute its
inputs.
"""
