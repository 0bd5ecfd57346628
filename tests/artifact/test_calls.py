"""The table of calls: written and read, and true to what the entry point does."""

from __future__ import annotations

import numpy as np
import pytest

import farrier
from bench import models
from farrier.artifact import calls
from farrier.artifact.calls import CallArgument, CallRecord
from farrier.errors import ArtifactError
from farrier.packaging.draws import random_inputs
from farrier.runtime.artifact import Artifact
from farrier_device.native import Library, Pool, aligned_buffer, call, pointers

RECORDS = (
    CallRecord("k1", "ab12", 'odd "name"\n', (CallArgument(0, 0, 64), CallArgument(3, 128, 0))),
    CallRecord("k2", "cd34", "", ()),
)


def test_what_is_written_is_read():
    assert calls.from_json(calls.to_json(RECORDS)) == RECORDS
    assert RECORDS[0].nbytes == 64


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"function": "f"}]', '{"a": 1}'])
def test_a_damaged_table_is_an_error_of_the_artifact(text):
    with pytest.raises(ArtifactError, match="table of calls"):
        calls.from_json(text)


@pytest.fixture(scope="module")
def artifact():
    return farrier.compile(models.build("mobilenet_v2", size=64), threads=1, verify=False)


def test_the_calls_one_by_one_give_what_the_entry_point_gives(artifact):
    manifest = artifact.manifest
    inputs = random_inputs(manifest.inputs)
    expected = artifact.run(inputs)
    (spec,) = manifest.outputs
    (array,) = inputs.values()
    sizes = [array.nbytes, 4 * int(np.prod(spec.shape))]
    sizes_array = np.array(manifest.sizes, np.int64)
    sizes += [manifest.params_bytes, manifest.backend["workspace_bytes"], sizes_array.nbytes]
    buffers = [aligned_buffer(size) for size in sizes]
    buffers[0].view[:] = array.tobytes()
    assert artifact.params is not None
    buffers[2].view[:] = artifact.params.cast("B")
    buffers[4].view[:] = sizes_array.tobytes()
    with Library.from_bytes(artifact.code.objects[0].content) as library, Pool(library) as pool:
        for step in artifact.calls:
            places = [buffers[a.position].address + a.offset for a in step.arguments]
            for argument in step.arguments:
                assert argument.offset + argument.nbytes <= sizes[argument.position]
            call(library.entry(step.function), pointers(places), pool)
    result = np.frombuffer(buffers[1].view, np.float32).reshape(spec.shape)
    np.testing.assert_array_equal(result, expected[spec.name])


def test_an_artifact_without_the_table_says_so(artifact):
    members = {name: data for name, data in artifact.members.items() if name != "calls.json"}
    without = Artifact(artifact.manifest, members, artifact.params)
    with pytest.raises(ArtifactError, match="compile the model again"):
        _ = without.calls
