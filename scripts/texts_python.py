"""The texts of ``%gpu``: what its display marks for translation, and the sentences it shows that are made elsewhere.

Marked are the literal arguments of `__`, `_n` and `_p`, as in the front end. The service, units.py and errors speak
English, figures and all; of their f-strings texts with %1, %2, … are made, which kernel/words.py finds again in what is
said.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from jupyter_gpushare.kernel.words import CONTEXT_END, SAID

Text = dict[str, str]

CALLS = {"__": ("id",), "_n": ("id", "plural"), "_p": ("context", "id")}  # where the arguments stand
SENTENCES = ("broker/words.py", "core/explain.py", "units.py")  # each of theirs is shown
ERRORS = (  # what they raise is shown by %gpu
    "kernel/client.py",
    "kernel/magics.py",
    "kernel/pool.py",
    "broker/verbs.py",
    "server/link.py",
    "server/pools.py",
    "model.py",
)


def texts_of_python(root: Path) -> Iterator[Text]:
    """As labextension/scripts/texts.cjs gives them. Raises ValueError for a marked text that is no literal."""
    package = root / "jupyter_gpushare"
    kernel = sorted(path.relative_to(package).as_posix() for path in (package / "kernel").glob("*.py"))
    for name in dict.fromkeys((*kernel, *SENTENCES, *ERRORS)):
        tree = ast.parse((package / name).read_text(encoding="utf-8"))
        file = f"jupyter_gpushare/{name}"
        yield from ({**text, "file": file} for text in _marked(tree, file))
        raised = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc and name in ERRORS)
        for said in itertools.chain.from_iterable(map(_sentences, [tree] if name in SENTENCES else raised)):
            context = {"context": SAID.removesuffix(CONTEXT_END)} if "%1" in said else {}
            yield {"id": said, **context, "file": file}


def _marked(tree: ast.AST, file: str) -> Iterator[Text]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            text = {}
            for part, argument in zip(CALLS[node.func.id], node.args, strict=False):
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"{file}:{node.lineno}: a text to translate must be a literal")  # noqa: TRY004
                text[part] = argument.value
            yield text


def _sentences(node: ast.AST) -> Iterator[str]:
    """Strings of more than a word, without docstrings and without what stands around figures alone."""
    if isinstance(node, ast.JoinedStr):
        numbers = itertools.count(1)
        parts = [part.value if isinstance(part, ast.Constant) else f"%{next(numbers)}" for part in node.values]
        text = "".join(map(str, parts)).strip()
        if re.search(r"[A-Za-z]", re.sub(r"%\d", "", text)):
            yield text
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _sentences(part.value)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and " " in node.value.strip():
            numbers = itertools.count(1)
            yield re.sub(r"\{\w+\}", lambda _: f"%{next(numbers)}", node.value.strip())
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # no docstring
        for child in ast.iter_child_nodes(node):
            yield from _sentences(child)
