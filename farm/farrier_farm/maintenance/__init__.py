"""The maintenance of a farm: removal of old data, and migration of data from older versions."""
