"""Compiled models on disk, by content, target, options and version: needs numpy alone to be read.

    from farrier.cache.cache import Cache, Request
    from farrier.cache.settings import CacheSettings

    cache = Cache(CacheSettings.from_environment(), warn=print)
    artifact = cache.artifact(Request(Path("m.onnx"), CompileOptions(), sizes={}), compile)

`compile(model, warn)` makes an artifact of a `Model`. `store` keeps entries, `files` remembers what
files contained, `key` says when code is the same.
"""
