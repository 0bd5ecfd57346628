"""Tests of the guarantees that `farrier.targets.Backend` documents."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from farrier.errors import ArtifactError, UsageError
from farrier.frontends.onnx.model.file import Model
from farrier.ir.loop import Barrier, Function
from farrier.ir.run_loops import run_loops
from farrier.ir.run_threads import run_threads
from farrier.ir.statements import walk_stmts
from farrier.lower.passes import PASSES as LOOP_PASSES
from farrier.lower.runner import run_loop_passes
from farrier.options import CompileOptions
from farrier.passes import PASSES
from farrier.pipeline import compile_model
from farrier.records import MemoryRecords, RecordStore, RuleId
from farrier.runtime.artifact import Artifact, load
from farrier.space import Decisions, Space
from farrier.targets import Backend, Target, parse_target, read_target, to_text, why_not_here
from farrier.targets.registry import backend_for
from farrier.testing import kernels
from farrier.testing.kernels import Arrays
from farrier_device.program import HOST

# The packages that only a compilation imports: none of them describes a machine.
_OF_COMPILATIONS = ("llvmlite", "onnx", "farrier.lower", "farrier.passes", "farrier.schedule")
_DESCRIBE = """
import importlib, json, sys
from farrier.targets import parse_target
backend = importlib.import_module({module!r}).BACKEND
backend.name, backend.archs, backend.precisions
for name in backend.machines:
    target = parse_target(name)
    backend.why_not_here(target.arch, target.cpu, target.features)
print(json.dumps(sorted(sys.modules)))
"""
_TRIALS = 4
_CANDIDATES = 4
_CLOSE = 1e-5  # Sums of f32 in another order differ by less, relative to the range.


class BackendContract:
    """The tests that every backend must pass.

    A subclass sets `module`, whose `BACKEND` is registered, and `machine`, the name of the machine
    for which the tests compile. `run` executes an artifact on this machine; a subclass with an
    emulator overrides it.
    """

    module: str
    machine: str

    def run(self, artifact: Artifact, inputs: Arrays, threads: int) -> Arrays:
        """Return the outputs of a call, by name. Skips the test if artifacts of the target cannot
        be executed here."""
        manifest = artifact.manifest
        if reason := why_not_here(manifest.architecture, manifest.machine, manifest.features):
            pytest.skip(reason)
        session = artifact.session(threads)
        outputs = session.run(inputs)
        session.close()
        return outputs

    @property
    def backend(self) -> Backend:
        backend: Backend = importlib.import_module(self.module).BACKEND
        return backend

    @property
    def rules(self) -> frozenset[RuleId]:
        """The identifiers of the backend's schedule rules."""
        return self.backend.rules

    @property
    def target(self) -> Target:
        return parse_target(self.machine)

    @functools.cached_property
    def artifact(self) -> Artifact:
        """The model of `kernels`, compiled for the target."""
        return self.compiled()

    def compiled(
        self, *, verify: bool = False, trials: int = 0, records: RecordStore | None = None
    ) -> Artifact:
        proto, _, _ = kernels.model()
        model = Model.of_bytes(proto.SerializeToString(), "small")
        options = CompileOptions(self.machine, verify=verify, trials=trials)
        return compile_model(model, options, name="small", records=records)

    def space(self, name: str) -> Space:
        """Return the schedule space of a kernel. Skips the test if the kernel would run on the host
        of the device."""
        program, target = kernels.kernel(name), self.target
        if reason := self.backend.why_not_on_device(program, target):
            pytest.skip(reason)
        return self.backend.space(program, target, target.threads)

    def loops(self, space: Space, decisions: Decisions) -> Function:
        """Return the lowered loops of a candidate."""
        function = space.schedule(decisions).function
        return run_loop_passes(function, self.backend.loop_passes(self.target))

    def default(self, name: str) -> Function:
        """Return the lowered loops of a kernel with the default schedule, which is used without
        measurements."""
        space = self.space(name)
        return self.loops(space, space.default())

    # -- describing machines

    def test_its_architectures_lead_to_it(self) -> None:
        assert self.backend.name
        assert self.backend.archs
        assert {backend_for(arch) for arch in self.backend.archs} == {self.backend}

    def test_a_machine_has_one_target_by_its_name_and_by_its_description(self) -> None:
        assert self.machine in self.backend.machines
        for name, machine in self.backend.machines.items():
            target = parse_target(name)
            assert target == parse_target(to_text(machine.description))
            assert target.arch == machine.description.arch
            assert target.arch in self.backend.archs
            assert target.backend is self.backend
            assert read_target(json.loads(json.dumps(target.to_dict()))) == target

    def test_a_machine_has_a_source_and_what_its_code_uses(self) -> None:
        for name, machine in self.backend.machines.items():
            assert machine.source
            assert parse_target(name).required_features <= set(machine.description.features)

    def test_a_target_has_its_backend_memories_and_parallel_axes(self) -> None:
        for target in map(parse_target, self.backend.machines):
            assert target.backend is self.backend
            assert target.threads >= 1
            names = [space.name for space in target.spaces]
            assert names[0] == HOST
            assert len(set(names)) == len(names)
            assert all(space.alignment.bit_count() == 1 for space in target.spaces)
            assert all(axis.limit >= 1 for axis in target.axes)

    def test_machines_that_differ_have_fingerprints_that_differ(self) -> None:
        targets = {parse_target(name) for name in self.backend.machines}
        assert len({target.fingerprint for target in targets}) == len(targets)
        assert self.target.fingerprint == parse_target(self.machine).fingerprint

    def test_a_name_that_is_nearly_a_machine_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(UsageError, match="unknown target") as refused:
            parse_target(f"{self.machine}x")
        assert self.machine in refused.value.hint

    def test_a_machine_without_extensions_is_a_target_or_is_refused_by_what_it_lacks(self) -> None:
        machine = self.backend.machines[self.machine].description
        bare = dataclasses.replace(machine, features=())
        if not self.target.required_features:
            assert self.backend.target(bare).required_features == frozenset()
            return
        with pytest.raises(UsageError) as refused:
            self.backend.target(bare)
        assert any(name in refused.value.message for name in machine.features)

    def test_a_clause_says_why_this_machine_cannot_run_its_code(self) -> None:
        target = self.target
        reason = self.backend.why_not_here(target.arch, target.cpu, target.features)
        assert reason == reason.strip()
        assert not reason.endswith(".")

    def test_it_describes_machines_without_a_compiler(self) -> None:
        """Machines can be described without a compiler and quickly, because this happens whenever
        an artifact is loaded."""
        done = subprocess.run(
            [sys.executable, "-c", _DESCRIBE.format(module=self.module)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert not set(_OF_COMPILATIONS) & set(json.loads(done.stdout))

    # -- passes

    def test_its_passes_exist(self) -> None:
        assert set(self.backend.passes) <= PASSES.keys() | self.backend.own_passes.keys()
        assert set(self.backend.own_passes) <= set(self.backend.passes)
        assert set(self.backend.loop_passes(self.target)) <= LOOP_PASSES.keys()

    def test_every_machine_multiplies_in_f32(self) -> None:
        assert self.backend.precisions["f32"] == frozenset()

    def test_its_intrinsics_have_names_of_their_own(self) -> None:
        names = [intrinsic.name for intrinsic in self.backend.intrinsics]
        assert len(set(names)) == len(names)

    # -- schedules and code

    @pytest.mark.parametrize("name", kernels.REGIONS)
    def test_a_space_has_finite_costs_and_rules_of_the_backend(self, name: str) -> None:
        space = self.space(name)
        assert set(space.rules) <= self.backend.rules
        costs = space.costs()
        assert np.all(np.isfinite(costs))
        assert np.all(costs > 0)
        assert space.contains(space.default())
        assert self.space(name).default() == space.default()

    @pytest.mark.parametrize("name", kernels.REGIONS)
    def test_a_default_schedule_computes_what_the_kernel_does(self, name: str) -> None:
        inputs, expected = kernels.example(name)
        _assert_close(self._outputs(self.default(name), inputs), expected)

    @pytest.mark.parametrize("name", kernels.REGIONS)
    def test_candidates_compute_what_the_kernel_does(self, name: str) -> None:
        inputs, expected = kernels.example(name)
        space = self.space(name)
        rows = space.candidates()
        chosen = np.random.default_rng(0).choice(len(rows), min(_CANDIDATES, len(rows)), False)
        for row in rows[[0, -1, *chosen]]:
            function = self.loops(space, space.decisions(row))
            _assert_close(self._outputs(function, inputs), expected)

    def _outputs(self, function: Function, inputs: Arrays) -> Arrays:
        """Execute lowered loops and return the outputs. Loops with barriers are executed by the
        interpreter of threads, which detects races."""
        if not any(isinstance(stmt, Barrier) for stmt in walk_stmts(function.body)):
            return run_loops(function, inputs)
        meanings = {declared.name: declared.semantics for declared in self.backend.intrinsics}
        return run_threads(function, inputs, meaning=meanings.__getitem__)

    def test_all_defaults_become_objects_that_are_the_same_each_time(self) -> None:
        target = self.target
        functions = [
            self.default(name)
            for name in kernels.REGIONS
            if not self.backend.why_not_on_device(kernels.kernel(name), target)
        ]
        objects = self.backend.compile(functions, self.target)
        assert objects
        assert all(isinstance(content, bytes) and content for content in objects)
        assert self.backend.compile(functions, self.target) == objects

    @pytest.mark.parametrize("name", kernels.REGIONS)
    def test_an_interface_is_that_of_the_kernel(self, name: str) -> None:
        function = self.default(name)
        interface = self.backend.interface(function)
        assert interface.name == function.name
        assert interface.params == function.params

    # -- whole models

    def test_a_model_is_right_with_one_thread_and_with_all(self) -> None:
        artifact = self.artifact
        _, inputs, expected = kernels.model()
        for threads in sorted({1, self.target.threads}):
            _assert_close(self.run(artifact, inputs, threads), expected)

    def test_its_runner_measures_schedules_of_its_rules(self) -> None:
        target = self.target
        if reason := self.backend.why_not_here(target.arch, target.cpu, target.features):
            pytest.skip(reason)
        records = MemoryRecords()
        self.compiled(verify=True, trials=_TRIALS, records=records)
        assert {record.made_by for record in records} <= self.rules
        assert any(record.samples_ns for record in records)

    def test_a_model_names_its_target_and_is_the_same_each_time(self, tmp_path: Path) -> None:
        artifact = self.artifact
        manifest = artifact.manifest
        assert (manifest.architecture, manifest.machine) == (self.target.arch, self.target.cpu)
        assert self.backend.threads(manifest.backend)[0] == self.target.threads
        assert {code.kind for code in manifest.code} <= self.backend.code_kinds
        assert self.compiled().members.keys() == artifact.members.keys()
        assert self.compiled().code == artifact.code
        assert load(artifact.save(tmp_path / "small.farrier")).code == artifact.code

    def test_where_it_cannot_run_a_model_is_refused(self) -> None:
        manifest = self.artifact.manifest
        reason = why_not_here(manifest.architecture, manifest.machine, manifest.features)
        if not reason:
            pytest.skip("this machine runs it")
        with pytest.raises(ArtifactError) as refused:
            self.artifact.session()
        assert reason in refused.value.message


def _assert_close(outputs: Arrays, expected: Arrays) -> None:
    """Assert that outputs are close to the expected ones, by name. A schedule may have merged axes
    of a kernel's outputs."""
    assert outputs.keys() == expected.keys()
    for name, array in expected.items():
        most = float(np.abs(array).max())
        output = outputs[name].reshape(array.shape)
        np.testing.assert_allclose(output, array, rtol=0, atol=_CLOSE * most)
