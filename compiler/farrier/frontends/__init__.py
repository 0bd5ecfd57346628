"""Ways into the compiler: what reads a model of some format, and the builder it stands on."""
