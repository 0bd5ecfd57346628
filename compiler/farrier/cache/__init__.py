"""A cache of compiled models on disk, keyed by content, target, options and version. Reading from
it needs only numpy.

    from farrier.cache.cache import Cache, Request
    from farrier.cache.settings import CacheSettings

    cache = Cache(CacheSettings.from_environment(), warn=print)
    artifact = cache.artifact(Request(Path("m.onnx"), CompileOptions(), sizes={}), compile)

`compile(model, warn)` creates an artifact from a `Model`. `store` manages the entries, `files`
remembers the contents of files, and `key` determines when two compilations produce the same code.
"""
