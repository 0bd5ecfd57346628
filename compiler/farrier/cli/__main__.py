"""`python -m farrier.cli`."""

from farrier.cli.main import main

main()
