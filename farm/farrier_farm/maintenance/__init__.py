"""The upkeep of a farm: removal by age, and migration of data from older versions."""
