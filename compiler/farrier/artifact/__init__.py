"""The artifact: one file that contains a compiled model and runs without the compiler."""
