"""The users of a farm: tokens, keys, quotas, claims on files, and the log of their changes."""
