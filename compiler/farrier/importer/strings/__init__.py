"""Operators on strings → operators on their code points (`farrier/strings.py`)."""
