"""Verify a linked model on the device, and race it against other engines."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from farrier.compilation.session import Session
from farrier.compilation.specialization import Specialization
from farrier.errors import UnverifiableError
from farrier.frontends.builder import ImportedModel, Source
from farrier.frontends.formats import Format
from farrier.measure import floor_of_run
from farrier.model_tuning.compare import Race
from farrier.packaging.against import race as race_with
from farrier.packaging.litert import LiteRt
from farrier.packaging.onnxruntime import OnnxRuntime
from farrier.packaging.package import specs
from farrier.packaging.reference_engine import ReferenceEngine
from farrier.packaging.torch_program import TorchProgram
from farrier.packaging.verify import Verification, Verifier
from farrier.progress import VERIFICATION, Raced, StageFinished, StageStarted, Verified, Warned
from farrier.targets.linked import LinkedModel


def start_engine(
    session: Session,
) -> contextlib.AbstractContextManager[ReferenceEngine | None]:
    """Return a context with the process of the reference engine for the model's format; None if the
    engine is not installed, the format has none, or nothing is to be verified."""
    model, engine = session.model, None
    if session.options.verify and not isinstance(model, Source):
        kind = _engine_for(model.format, session.imported)
        if kind is not None:
            engine = kind.of(
                model,
                lambda message: session.listener(Warned(message, VERIFICATION)),
                session.reference_s,
            )
    return contextlib.nullcontext() if engine is None else engine


def _engine_for(format: Format, imported: ImportedModel) -> type[ReferenceEngine] | None:
    """Return the reference engine for models of a format; None if there is none. LiteRT cannot
    start a call from a state, because it does not expose its variables."""
    match format:
        case Format.ONNX:
            return OnnxRuntime
        case Format.TFLITE if not imported.states:
            return LiteRt
        case Format.TORCH:
            return TorchProgram
        case _:
            return None


def make_verifier(session: Session, engine: ReferenceEngine | None) -> Verifier | None:
    """Return the verifier with the model's expected outputs; None if nothing is to be verified or
    the model has no result for any random input. Raises TimeLimitError if no reference finished in
    time."""
    if not session.options.verify:
        return None
    inputs, outputs = specs(session.imported)
    try:
        with session.steps("reference") as step:
            return step.done(
                Verifier(
                    engine,
                    session.onnx_model,
                    session.imported,
                    inputs,
                    outputs,
                    session.blobs,
                    session.settings.precision,
                    session.reference_s,
                )
            )
    except UnverifiableError as error:
        _warn_unverified(session, error)
        return None


def verify(
    session: Session,
    verifier: Verifier,
    linked: LinkedModel,
    specializations: Sequence[Specialization],
    race: Race | None,
) -> Verification | None:
    """Run the complete model on the device and report the result; `race` is the last race of
    tuning. Return None if the model rejects all inputs that are drawn. Raises VerificationError."""
    # If the data decides sizes, the typical ones say nothing of a run.
    has_sizes = not linked.capacities and not linked.counted
    floor = min(_floor_ns(session, each) for each in specializations) if has_sizes else 0
    with session.steps("verify") as step:
        try:
            verified = verifier.verify(linked, session.device, session.run_threads, floor)
        except UnverifiableError as error:
            _warn_unverified(session, error)
            return step.done(None)
        if verified.untrusted:
            message = (
                f"the model is verified by the device {verified.device} alone, which nobody "
                f"trusts: `farrier devices trust {verified.device}` vouches for it"
            )
            session.listener(Warned(message, VERIFICATION))
        step.done(verified)
    session.listener(_event(verified, race, session.device.is_emulated))
    if verified.parting is not None:
        session.listener(Warned(f"{session.name}: {verified.parting}", VERIFICATION))
    if verified.alone:
        session.listener(Warned(f"{session.name} is {verified.alone}", VERIFICATION))
    return verified


def _warn_unverified(session: Session, error: UnverifiableError) -> None:
    message = f"{session.name} is not verified: {error.message}"
    session.listener(Warned(message, VERIFICATION))


def _floor_ns(session: Session, specialization: Specialization) -> int:
    """Return a lower bound in nanoseconds of any run of a specialization."""
    target, variant = session.settings.target, specialization.variant
    floors = {}
    for key, choice in variant.choices.items():
        machine = target.part(choice.site.space)
        floors[key] = machine.backend.floor_ns(choice.program, machine, session.run_threads)
    return floor_of_run(variant.program, floors)


def _event(verified: Verification, race: Race | None, emulated: bool) -> Verified:
    return Verified(
        verified.max_error,
        verified.median_ms,
        None if race is None else race.default_ms,
        verified.device,
        emulated,
        "" if verified.parting is None else verified.parting.engine,
        verified.confirmed_by,
        verified.untrusted,
        verified.reference,
    )


def race_engines(
    session: Session, verified: Verification | None, engines: Sequence[str]
) -> Sequence[Raced]:
    """Race the model against other engines on the device, if the model is verified and the device
    has the engines; return the results."""
    if not engines:
        return ()
    obstacle = ""
    if session.onnx_model is None:
        obstacle = "it is not an ONNX model"
    elif verified is None:
        obstacle = "it is not verified"
    elif session.device.is_emulated:
        obstacle = "the device is emulated"
    if session.onnx_model is None or verified is None or obstacle:
        names = " and ".join(engines)
        session.listener(Warned(f"the model is not raced with {names}: {obstacle}"))
        return ()
    session.listener(StageStarted("against"))
    begin = time.perf_counter()
    results = race_with(
        engines, session.onnx_model, verified, session.device, session.blobs, session.listener
    )
    session.steps.seconds["against"] = time.perf_counter() - begin
    session.listener(StageFinished("against", session.steps.seconds["against"]))
    return results
