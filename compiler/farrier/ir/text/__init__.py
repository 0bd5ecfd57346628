"""The parts of the IR parser: one file a grammar."""
