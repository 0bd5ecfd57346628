"""A farm as it looks after weeks of use, for screenshots and for figures of the dashboard."""
