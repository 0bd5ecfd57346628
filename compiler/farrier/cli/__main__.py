"""The module behind `python -m farrier.cli`, which runs the `farrier` command."""

from farrier.cli.main import main

main()
