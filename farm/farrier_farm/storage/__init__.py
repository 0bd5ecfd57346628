"""The files of a farm: blobs identified by their SHA-256, models of several blobs, and references
to blobs and models."""
