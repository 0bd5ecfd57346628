"""The files of a farm: blobs by their sha256, models of several blobs, and references to both."""
