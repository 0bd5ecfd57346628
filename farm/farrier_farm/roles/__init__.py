"""The processes of one machine: started, watched, and started again."""
