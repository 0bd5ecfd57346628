"""Files that are complete and on the disk, and stores of them: shared by all packages."""
