"""Backups of a farm that goes on working, and farms from backups."""
