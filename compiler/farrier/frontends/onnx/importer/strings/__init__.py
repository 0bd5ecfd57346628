"""Operators on strings → operators on their code points (`farrier/ir/strings.py`)."""
