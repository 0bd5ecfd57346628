"""Every rule that makes records is known."""

from __future__ import annotations

import re
from pathlib import Path

from farrier.model_tuning.known_rules import known_rules
from farrier.records import RuleId

ROOT = Path(__file__).parents[2]


def test_every_rule_of_the_sources_is_known():
    declared = set()
    for path in (ROOT / "compiler/farrier").rglob("*.py"):
        for name, version in re.findall(r'RuleId\("([\w/-]+)", version=(\d+)\)', path.read_text()):
            declared.add(RuleId(name, int(version)))
    assert len(declared) > 5
    # A sketch of a program that was rewritten is named by the rewrites and by its derivation.
    names = {rule.name for rule in known_rules() if "+" in rule.name}
    firsts = {name.partition("+")[0] for name in names}
    rewrites = ("split-threads", "phases", "fuse-sums", "stage-operands")
    assert firsts == {f"sketch/{rewrite}" for rewrite in rewrites}
    single = {rule for rule in known_rules() if rule.name not in names}
    assert single == {rule for rule in declared if rule.name not in firsts}
