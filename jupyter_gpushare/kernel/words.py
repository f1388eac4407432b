"""What ``%gpu`` says, in the person's language: English as it stands in the sources, else the front end's catalogue.

A catalogue is read with the first text that is shown, and none where the language is English.
"""

from __future__ import annotations

import os
import re
from functools import cache, cached_property
from typing import Any

LOCALE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "locale")
CATALOGUE = os.path.join("LC_MESSAGES", "jupyter_gpushare.json")
CONTEXT_END = "\x04"
SAID = f"said{CONTEXT_END}"  # the context of sentences with figures in them that others than the kernel's display make
LANGUAGES = ("GPUSHARE_LANGUAGE", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")  # JupyterLab's, else as gettext has it
SOURCES = ("en", "C", "POSIX")
NUMBER = re.compile(r"\d[\d,]*(\.\d+)?")
SWAPPED = str.maketrans(".,", ",.")
LONGEST = 1_000  # letters: no sentence of ours has more, and looking for one in a longer text takes seconds
SHORT = 10  # letters: a text of fewer beside its figures would be found everywhere if those could be whole clauses
FIGURE, CLAUSE, SENTENCES = r"((?:[^.,:;]|[.,:;](?=\S))*)", r"((?:(?!\. ).)*)", "(.*)"


def __(text: str, *args: object) -> str:  # noqa: N807 as the front end calls it
    """The text with %1, %2, … filled in."""
    found = catalogue()
    return _filled(found.form(text) if found else text, args)


def _n(one: str, many: str, count: int, *args: object) -> str:
    """The same in the form for so many; %1 is the count."""
    found = catalogue()
    return _filled(found.form(one, many, count) if found else one if count == 1 else many, (count, *args))


def _p(context: str, text: str) -> str:
    """The text as it is meant there."""
    found = catalogue()
    return found.form(f"{context}{CONTEXT_END}{text}").rpartition(CONTEXT_END)[2] if found else text


def number(text: str) -> str:
    """A figure as Python writes it, with the language's decimal mark."""
    return text if _p("decimal mark", ".") == "." else text.translate(SWAPPED)


def say(text: str) -> str:
    """A sentence that was made in English, figures and all: by the service, by units.py, as an error.

    What the catalogue does not know stays as it is: the service may be newer than this kernel's package.
    """
    found = catalogue() if len(text) <= LONGEST else None
    return found.sentence(text) if found else text


def _filled(text: str, args: tuple[object, ...]) -> str:
    return re.sub(r"%(\d)", lambda place: str(args[int(place[1]) - 1]), text) if args else text


class Catalogue:
    """One language, as JupyterLab reads it."""

    def __init__(self, texts: dict[str, Any]) -> None:
        from gettext import c2py

        self._texts = {text: forms for text, forms in texts.items() if text and isinstance(forms, list) and forms}
        self._which = c2py(texts[""]["plural_forms"].split(";")[1].partition("=")[2])

    def form(self, text: str, many: str | None = None, count: int = 1) -> str:
        """A text that has no translation stays as it is."""
        forms = self._texts.get(text)
        if forms is None:
            return text if many is None or count == 1 else many
        return str(forms[0 if many is None else min(self._which(count), len(forms) - 1)])

    def sentence(self, text: str) -> str:
        known = self._known(text)
        if known is not None:
            return known
        for between in reversed(list(re.finditer(r"(?<=\.) |: ", text))):  # several of them in a row
            known = self._known(text[: between.start()])
            if known is not None:
                return f"{known}{between[0]}{self.sentence(text[between.end() :])}"
        devices = text.split(" and ")
        if len(devices) > 1 and all(one.startswith("GPU ") for one in devices):
            return self.form(" and ").join(devices)
        return number(text) if NUMBER.fullmatch(text) else text

    def _known(self, text: str) -> str | None:
        bare = text.strip()
        if bare and bare in self._texts:
            return text.replace(bare, self.form(bare))
        for pattern, translation in self._patterns:
            found = pattern.fullmatch(bare)
            if found is not None:
                return text.replace(bare, _filled(translation, tuple(map(self.sentence, found.groups()))))
        return None

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str]]:
        """Those with figures, the most words first: "Computing on %1 on borrowed time: …" before "Computing on %1."."""
        parts = {key: re.split(r"%\d", key.removeprefix(SAID)) for key in self._texts if key.startswith(SAID)}
        letters = {key: sum(map(len, found)) for key, found in parts.items()}
        made = []
        for key in sorted(parts, key=lambda key: -letters[key]):
            first, *rest = parts[key]
            pattern, before = re.escape(first), first
            for part in rest:
                own = not before or before.endswith((". ", ": ", "("))  # sentences of its own may stand there
                pattern += (FIGURE if letters[key] < SHORT else SENTENCES if own else CLAUSE) + re.escape(part)
                before = part
            made.append((re.compile(pattern, re.DOTALL), self.form(key)))
        return made


def catalogue() -> Catalogue | None:
    """That of the language now; None: the sources' own."""
    language = next((value for name in LANGUAGES if (value := os.environ.get(name))), "")
    return _catalogue_of(language)


@cache
def _catalogue_of(languages: str) -> Catalogue | None:
    """``de_DE.UTF-8``, or several as gettext has them (``de_AT:fr``); of another country's if need be."""
    for language in languages.split(":"):
        name = re.split(r"[.@]", language)[0].replace("-", "_")
        if name.split("_")[0] in SOURCES:
            return None
        there = sorted(os.listdir(LOCALE), key=lambda folder: folder != name)
        for folder in there:
            if name and folder.split("_")[0] == name.split("_")[0]:
                return _read(os.path.join(LOCALE, folder, CATALOGUE))
    return None


def _read(path: str) -> Catalogue | None:
    import json

    try:
        with open(path, encoding="utf-8") as file:
            return Catalogue(json.load(file))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # damaged: no reason not to show a share
        return None
