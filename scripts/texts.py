"""Catalogues of what people read: `make texts` brings them up to date, `--check` only says whether they are.

The template (.pot) holds every text of the front end and of ``%gpu``. Each language has a .po that people edit; what is
new there is empty until somebody translates it. JupyterLab and kernels read the .json beside it, in the form of
JupyterLab's language packs.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from babel.messages import Catalog, Message
from babel.messages.pofile import read_po, write_po

from jupyter_gpushare._version import __version__
from scripts.texts_python import texts_of_python

ROOT = Path(__file__).parents[1]
LOCALE = ROOT / "jupyter_gpushare" / "locale"
DOMAIN = "jupyter_gpushare"
TEMPLATE = LOCALE / f"{DOMAIN}.pot"
CONTEXT_END = "\x04"  # between context and text, as gettext has it
DROPPED = r'"(POT-Creation|PO-Revision|Last-Translator|Language-Team|Report-Msgid|Generated-By).*"\n'
HEADER = "# Texts of jupyter-gpushare's front end and of %gpu. Made by `make texts`.\n"


def template() -> Catalog:
    """Every text of the sources. Raises ValueError where one text is used both with a plural and without."""
    script = ROOT / "labextension" / "scripts" / "texts.cjs"
    found = subprocess.run(["node", script], stdout=subprocess.PIPE, check=True)
    catalog = Catalog(domain=DOMAIN, project="jupyter-gpushare", version=__version__, header_comment=HEADER)
    plurals: dict[tuple[str | None, str], str | None] = {}
    for text in [*json.loads(found.stdout), *texts_of_python(ROOT)]:
        key = (text.get("context"), text["id"])
        plural = text.get("plural")
        if plurals.setdefault(key, plural) != plural:
            raise ValueError(f"{text['file']}: {text['id']!r} has two plurals, or one here and none elsewhere")
        catalog.add((text["id"], plural) if plural else text["id"], locations=[(text["file"], 0)], context=key[0])
    return catalog


def po(catalog: Catalog) -> str:
    """The same for the same texts: without dates and names of people."""
    written = io.BytesIO()
    write_po(written, catalog, width=110, include_lineno=False, ignore_obsolete=True)
    return re.sub(DROPPED, "", written.getvalue().decode()).replace('#, fuzzy\nmsgid ""', 'msgid ""')


def languages() -> Iterator[tuple[str, Path]]:
    for path in sorted(LOCALE.glob(f"*/LC_MESSAGES/{DOMAIN}.po")):
        yield path.parts[-3], path


def translated(language: str, path: Path, texts: Catalog) -> Catalog:
    """What is translated of the present texts."""
    with path.open("rb") as file:
        catalog = read_po(file, locale=language, domain=DOMAIN)
    catalog.update(texts, no_fuzzy_matching=True)
    catalog.project, catalog.version, catalog.header_comment = texts.project, __version__, HEADER
    return catalog


def forms(message: Message) -> list[str]:
    """Its translations, one for each plural form; empty strings where there is none."""
    string = message.string or ""
    return [string] if isinstance(string, str) else [form or "" for form in string]


def compiled(language: str, catalog: Catalog) -> str:
    """The catalogue as jupyterlab_server reads it; only what is translated whole."""
    head = {
        "domain": DOMAIN,
        "language": language.replace("_", "-"),
        "plural_forms": catalog.plural_forms.rstrip(";") + ";",
        "version": __version__,
    }
    texts: dict[str, object] = {}
    for message in catalog:
        name = message.id if isinstance(message.id, str) else message.id[0]
        if name and all(forms(message)):
            texts[f"{message.context}{CONTEXT_END}{name}" if message.context else name] = forms(message)
    return json.dumps({"": head, **dict(sorted(texts.items()))}, ensure_ascii=False, indent=1) + "\n"


def expected() -> dict[Path, str]:
    """What each file should hold."""
    texts = template()
    files = {TEMPLATE: po(texts)}
    for language, path in languages():
        catalog = translated(language, path, texts)
        files[path] = po(catalog)
        files[path.with_suffix(".json")] = compiled(language, catalog)
    return files


def said(path: Path, text: str) -> set[object]:
    """What a catalogue says, whatever the order of its texts and the files they are in."""
    if path.suffix == ".json":
        return {(key, str(value)) for key, value in json.loads(text).items()}
    return {(message.context, str(message.id), str(message.string)) for message in read_po(io.StringIO(text))}


def stale() -> list[str]:
    """Files that lack something of what the sources and the translations say."""
    return [
        str(path.relative_to(ROOT))
        for path, text in expected().items()
        if not path.exists() or not said(path, text) <= said(path, path.read_text(encoding="utf-8"))
    ]


def main() -> int:
    if "--check" in sys.argv:
        late = stale()
        if late:
            print(f"Not up to date: {', '.join(late)}. Run `make texts`, then translate what is empty.")
        return len(late) > 0
    for path, text in expected().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
