"""Rewrite operators on strings to operators on their code points (`farrier/ir/strings.py`)."""
