"""Files on disk: mapped files, arrays, constants next to dumped text."""
