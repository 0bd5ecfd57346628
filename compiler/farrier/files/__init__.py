"""What lies on disk: mapped files, arrays, constants beside dumped text."""
