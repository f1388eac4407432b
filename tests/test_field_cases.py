"""The tests that docs/developers/field-cases.md names are there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs/developers/field-cases.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([ABCEF]\d+) \| [^|]+ \| (.+) \|$", PAGE, re.MULTILINE)


def _tests_of(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_case_names_tests_that_exist():
    assert len(ROWS) == len(re.findall(r"^\| [A-Z]\d+ \|", PAGE, re.MULTILINE)) > 50
    named = [(case, *test.split("::")) for case, tests in ROWS for test in re.findall(r"`([^`]+)`", tests)]
    assert {case for case, *_ in named} == {case for case, _ in ROWS}
    there = {file: _tests_of(file) for _, file, _ in named}
    assert [(case, file, name) for case, file, name in named if name not in there[file]] == []


def test_no_case_has_two_rows():
    assert [case for case, times in Counter(case for case, _ in ROWS).items() if times > 1] == []
