"""Nodes in forms that no operator of Farrier has → several that it has, one family a file."""
