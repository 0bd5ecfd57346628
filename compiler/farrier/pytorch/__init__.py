"""The modules that import torch: the export of modules, and the backend of torch.compile.

The base install, the farm's workers and the frontend of `.pt2` files never import torch.
"""
