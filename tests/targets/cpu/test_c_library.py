"""A C program runs a model as a shared library, without Python."""

from __future__ import annotations

import subprocess

import numpy as np
import onnxruntime
import pytest

import farrier
from bench import models
from farrier.errors import UsageError
from farrier.llvm import zig

_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "first.h"
#include "second.h"
int main(void) {
  float *const into = aligned_alloc(FIRST_ARENA_ALIGNMENT, FIRST_ARENA_BYTES);
  float *const other = aligned_alloc(SECOND_ARENA_ALIGNMENT, SECOND_ARENA_BYTES);
  if (fread(first_input_x(into), 4, 768, stdin) != 768) return 9;
  for (int i = 0; i < 768; i++) second_input_x(other)[i] = first_input_x(into)[i];
  const int code = first_run(into) + second_run(other);
  fwrite(first_output_logits(into), 4, 5, stdout);
  fwrite(second_output_logits(other), 4, 6, stdout);
  return code;
}
"""


@pytest.mark.long
def test_two_models_run_in_one_program(tmp_path):
    x = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    expected = []
    for name, classes in (("first", 5), ("second", 6)):
        model = models.build("mobilenet_v2", size=16, stages=1, classes=classes)
        artifact = farrier.compile(model, verify=False)
        for file, content in artifact.export(name=name).files.items():
            (tmp_path / file).write_bytes(content)
        expected += onnxruntime.InferenceSession(model).run(None, {"x": x})
    (tmp_path / "both.c").write_text(_MAIN)
    words = ["cc", "-fno-sanitize=all", "both.c", "-L.", "-lfirst", "-lsecond"]
    zig.run([*words, "-Wl,-rpath,$ORIGIN", "-o", "both"], tmp_path, "the program does not link")
    done = subprocess.run([tmp_path / "both"], input=x.tobytes(), capture_output=True, check=True)
    outputs = np.frombuffer(done.stdout, np.float32)
    np.testing.assert_allclose(outputs, np.concatenate(expected, axis=1)[0], rtol=1e-4, atol=1e-5)


def test_open_sizes_and_other_forms_are_refused():
    small = {"layers": 1, "width": 32, "heads": 2, "vocabulary": 50}
    model = models.build("bert_base", tokens="tokens", **small)
    with pytest.raises(UsageError, match=r"are open \(tokens\)"):
        farrier.compile(model, verify=False).export()
    fixed = farrier.compile(models.build("bert_base", tokens=4, **small), verify=False)
    with pytest.raises(UsageError, match="no form 'elf'"):
        fixed.export("elf")
