from tests.end_to_end.conftest import up  # noqa: F401
