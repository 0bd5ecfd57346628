"""The command line of Farrier: the command `farrier`."""
