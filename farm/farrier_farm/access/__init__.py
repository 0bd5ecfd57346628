"""The users of a farm: their tokens, quotas and claims on files, the signing keys, and the audit
log."""
