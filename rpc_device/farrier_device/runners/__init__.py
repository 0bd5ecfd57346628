"""Who measures: one module a kind of runner."""
