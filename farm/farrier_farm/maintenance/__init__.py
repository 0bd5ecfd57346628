"""The upkeep of a farm: what is removed in time, and what older versions have written."""
