"""The readers of the IR parser, one module for each grammar."""
