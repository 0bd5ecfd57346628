"""C around a model's object: a library that a firmware calls, and an image that a board runs."""
