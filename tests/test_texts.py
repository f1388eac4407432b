"""Every text of the front end and of %gpu is in the catalogues, and each language says all of them."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest
from babel.messages.pofile import read_po
from jupyterlab_server.translation_utils import get_language_pack

from jupyter_gpushare.core import explain
from scripts import texts, texts_python

LANGUAGES = dict(texts.languages())


def marks(text: str) -> Counter[str]:
    """Placeholders, and the asterisks around what is bold."""
    return Counter(re.findall(r"%\d|\*\*", text))


def test_the_catalogues_hold_every_text_of_the_sources():
    assert texts.stale() == [], "run `make texts`, then translate what is empty"


def test_the_front_end_knows_the_sentence_of_every_reason():
    known = {message.id for message in texts.template()}
    assert {*explain.WHY.values(), *explain.DECISIVE.values()} <= known, "see labextension/src/reasons.ts"


def test_a_sentence_with_figures_is_found_in_the_code_that_makes_it():
    code = """
'''A docstring of several words.'''
RECLAIM = {"park": "It will be parked in {clock}. Your variables stay."}
message = f"Parked. {format(size)} rest{' for now' if short else ''}." + "one-word"
bar = f"{a}: {b:.2f}"
"""
    assert list(texts_python._sentences(ast.parse(code))) == [
        "It will be parked in %1. Your variables stay.",
        "Parked. %1 rest%2.",
        "for now",
    ]


def test_a_text_that_is_no_literal_is_said():
    with pytest.raises(ValueError, match=r"render.py:2: .* literal"):
        list(texts_python._marked(ast.parse("\n__(text)"), "render.py"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_says_every_text_in_every_plural_form_with_the_same_placeholders(language):
    with LANGUAGES[language].open("rb") as file:
        catalog = read_po(file, locale=language)
    assert len(catalog) > 300
    for message in catalog:
        if not message.id:
            continue
        ids = [message.id] if isinstance(message.id, str) else list(message.id)
        forms = texts.forms(message)
        assert len(forms) == (1 if isinstance(message.id, str) else catalog.num_plurals), ids
        assert all(forms), ids
        assert not message.fuzzy, ids
        for form in forms:
            of_one = len(ids) > 1 and form is forms[0]  # "a GPU" needs no number, and need not be without one
            assert marks(form) in ([marks(one) for one in ids] if of_one else [marks(ids[-1])]), (ids, form)
            assert [form[:1] == " ", form[-1:] == " "] == [ids[0][:1] == " ", ids[0][-1:] == " "], form


@pytest.mark.parametrize("language", LANGUAGES)
def test_jupyterlab_finds_the_language_beside_its_own_pack(language):
    packs, message = get_language_pack(language)
    assert message.strip() == ""
    assert packs["jupyter_gpushare"][""]["language"] == language.replace("_", "-")
    assert packs["jupyter_gpushare"]["Computing"] != ["Computing"]
    assert "jupyterlab" in packs
