"""Backups of a farm while it runs, and the restore of a farm from a backup."""
