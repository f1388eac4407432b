"""Pictures of what people see, and the themes they see it in."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "artifacts"
AXE = ROOT / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
LIGHT, DARK, CONTRAST = "JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"


def picture(page: Page, name: str) -> None:
    """The window as it is now, as artifacts/<name>.png. JupyterLab covers it with a splash while it changes theme."""
    PICTURES.mkdir(exist_ok=True)
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.screenshot(path=PICTURES / f"{name}.png")


def theme(page: Page, name: str) -> None:
    """Switches JupyterLab's theme, as the settings menu does, and waits until it is there."""
    page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name)
    page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)
    page.wait_for_selector("#jupyterlab-splash", state="detached")
