"""The artifact: one file that holds a compiled model and runs without the compiler."""
