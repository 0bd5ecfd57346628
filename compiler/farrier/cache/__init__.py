"""Compiled models on disk, by content, target, options and version: needs numpy alone to be read.

    cache = Cache.of_environment()
    artifact = cache.artifact(source, request, compile, warn)

`store` keeps entries, `files` remembers what files contained, `key` says when code is the same.
"""
