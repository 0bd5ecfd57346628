"""The C sources that surround a model's object file: the library for a firmware, and the programs
that boards run."""
