"""A real kernel speaks the language of its JupyterLab; without one, that of its process."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpushare.demo.notebook import Notebook
from jupyter_gpushare.demo.servers import serving

pytestmark = pytest.mark.timeout(180)


def said(server: object, name: str) -> str:
    """The second line of ``%gpu release``: what it says is the same on every machine."""
    notebook = Notebook(server, name)  # type: ignore[arg-type]
    text = notebook.run("%gpu release").text.strip()
    notebook.close()
    return text


ENGLISH = "Given back. Your variables stay. Ask again with %gpu resume"
GERMAN = "Zurückgegeben. Ihre Variablen bleiben. Erneut anfordern mit %gpu resume"


def test_gpu_speaks_the_language_chosen_in_jupyterlab_from_the_next_start_of_a_kernel(tmp_path: Path) -> None:
    setting = tmp_path / "config-alice/lab-settings/@jupyterlab/translation-extension/plugin.jupyterlab-settings"
    overrides = tmp_path / "config-alice/labconfig/default_setting_overrides.json"
    with serving("alice", tmp_path) as alice:
        assert said(alice, "features.ipynb") == ENGLISH
        setting.parent.mkdir(parents=True)
        setting.write_text('{\n  // chosen in the menu\n  "locale": "de_DE"\n}')
        assert said(alice, "features.ipynb") == GERMAN
        setting.write_text('{"locale": "default"}')
        assert said(alice, "features.ipynb") == ENGLISH
        setting.write_text("{nothing that could be read")
        assert said(alice, "features.ipynb") == ENGLISH
        setting.unlink()
        overrides.parent.mkdir(exist_ok=True)
        overrides.write_text('{"@jupyterlab/translation-extension:plugin": {"locale": "de_DE"}}')  # an admin's
        assert said(alice, "features.ipynb") == GERMAN


def test_without_jupyterlab_it_is_the_locale_of_the_process(tmp_path: Path) -> None:
    with serving("alice", tmp_path, lab=False, environment={"LANGUAGE": "", "LANG": "de_DE.UTF-8"}) as alice:
        assert said(alice, "features.ipynb") == GERMAN
