"""Fill a farm with data as after weeks of use, for screenshots and for measurements of the
dashboard."""
