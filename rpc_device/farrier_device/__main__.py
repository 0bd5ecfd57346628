"""`python -m farrier_device`."""

from farrier_device.main import main

main()
