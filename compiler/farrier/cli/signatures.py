"""The verb `farrier verify-signature`, and the reading of the key for `farrier compile --sign`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farrier.errors import ArtifactError, UsageError, not_installed

if TYPE_CHECKING:
    from farrier.artifact.signature import SigningKey


def verify_signature(
    artifacts: Annotated[list[Path], typer.Argument(help="The .farrier files.")],
    trust: Annotated[
        list[str] | None,
        typer.Option(
            help="Public key, or a file or folder of public keys; repeatable [env FARRIER_TRUST]."
        ),
    ] = None,
) -> None:
    """Check the hashes and signatures of artifacts. The artifacts are not run. Exit with 7 if one
    is unsigned, changed, or signed by a key that is not trusted."""
    from farrier.artifact.trust import Trust
    from farrier.runtime.artifact import check_whole

    if trust:
        trusted: Trust | None = Trust.of_text(",".join(trust), "--trust")
    else:
        trusted = Trust.of_environment()
    for path in artifacts:
        began = time.perf_counter()
        artifact = check_whole(path, trusted)
        took = time.perf_counter() - began
        signature = artifact.signature
        if signature is None:
            raise ArtifactError(
                f"{path} is not signed",
                hint="fetch it from a farm that signs, or compile it with --sign KEY",
            )
        whose = "" if trusted else "; no key is trusted: use --trust or FARRIER_TRUST to name one"
        typer.echo(
            f"{path}: signed by {signature.key.fingerprint}, {len(signature.files)} files, "
            f"{path.stat().st_size / 1e6:.2f} MB checked in {took * 1e3:.0f} ms{whose}"
        )


def read_key(path: Path) -> SigningKey:
    """Return the private key in a file. Raises UsageError."""
    from farrier.artifact.signature import SigningKey

    try:
        return SigningKey.of_pem(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"the key {path} cannot be read: {error.strerror}",
            hint="`openssl genpkey -algorithm ed25519 -out signing.key` creates a key",
        ) from error
    except UsageError as error:
        raise UsageError(f"{path} is {error.message}", hint=error.hint) from None
    except ModuleNotFoundError as error:
        raise not_installed(error) from error
