"""Durable files, and stores of such files, for use by all packages."""
