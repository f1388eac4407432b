"""What is shipped: everything the product needs, nothing it does not, installable where there is no Node.js."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import jupyter_gpushare

ROOT = Path(__file__).parents[1]
SHARE = "share/jupyter/labextensions/jupyter-gpushare"

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]


def without_node() -> dict[str, str]:
    """This environment with no Node.js on its PATH."""
    folders = [
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not any((Path(folder) / name).exists() for name in ("node", "npm", "yarn", "jlpm"))
    ]
    return os.environ | {"PATH": os.pathsep.join(folders)}


def build(kind: str, source: Path, out: Path, environment: dict[str, str]) -> Path:
    subprocess.run(
        [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(out), str(source)],
        check=True,
        capture_output=True,
        env=environment,
    )
    (built,) = out.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"), dict(os.environ))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)  # not in 3.11.2
        archive.extractall(folder)
    (source,) = folder.iterdir()
    return build("wheel", source, tmp_path_factory.mktemp("wheel"), without_node())


@pytest.fixture(scope="module")
def shipped(wheel) -> set[str]:
    """Paths in the wheel, data files by where they are installed."""
    with zipfile.ZipFile(wheel) as archive:
        return {re.sub(r"^[^/]+\.data/data/", "", name) for name in archive.namelist()}


def test_the_wheel_built_from_the_sdist_without_node_carries_the_whole_product(shipped):
    wanted = {
        f"{SHARE}/package.json",
        f"{SHARE}/install.json",
        f"{SHARE}/static/style.js",
        f"{SHARE}/schemas/jupyter-gpushare/plugin.json",
        "etc/jupyter/jupyter_server_config.d/jupyter_gpushare.json",
        "share/gpushare/gpushare-agent.service",
        "share/gpushare/gpushare-broker.service",
        "share/gpushare/nats-server.conf",
        "jupyter_gpushare/py.typed",
        "jupyter_gpushare/server/event_schemas/decision/v1.yaml",
        "jupyter_gpushare/demo/notebooks/guide.ipynb",
        "jupyter_gpushare/demo/inventory.json",
        "jupyter_gpushare/locale/de_DE/LC_MESSAGES/jupyter_gpushare.json",
        "jupyter_gpushare/hub/page/index.html",
        "jupyter_gpushare/hub/page/built/page.js",
        "jupyter_gpushare/hub/page/built/page.css",
    }
    assert wanted <= shipped, f"missing: {sorted(wanted - shipped)}"
    assert any(re.fullmatch(r"jupyter_gpushare/broker/migrations/versions/\w+\.py", name) for name in shipped)


def test_the_wheel_carries_no_sources_of_the_front_end_and_no_tests(shipped):
    unwanted = {
        name for name in shipped if "node_modules" in name or name.endswith((".ts", ".tsx")) or "tests/" in name
    }
    assert unwanted == set()


def test_the_sdist_carries_the_built_front_end_and_no_node_modules(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"jupyter_gpushare/labextension/static/style.js", "jupyter_gpushare/hub/page/built/page.js"} <= names
    assert not any("node_modules" in name or name.startswith(("labextension/lib/", ".venv/")) for name in names)


def test_versions_of_python_package_and_front_end_agree():
    package = (ROOT / "labextension" / "package.json").read_text()
    assert f'"version": "{jupyter_gpushare.__version__}"' in package


def test_pip_install_alone_enables_all_parts_where_there_is_no_node(wheel, tmp_path):
    environment = without_node() | {"JUPYTER_CONFIG_DIR": str(tmp_path / "config"), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    run = {"check": True, "capture_output": True, "text": True, "env": environment}
    subprocess.run([python, "-m", "pip", "install", "-q", str(wheel), "jupyterlab>=4.6,<5"], **run)

    lab = subprocess.run([python, "-m", "jupyter", "labextension", "list"], **run)
    assert re.search(r"jupyter-gpushare v\S+.*enabled.*OK", lab.stdout + lab.stderr)

    server = subprocess.run([python, "-m", "jupyter", "server", "extension", "list"], **run)
    assert re.search(r"jupyter_gpushare.*enabled", server.stdout + server.stderr)
    assert re.search(r"jupyter_gpushare \S+.*OK", server.stdout + server.stderr)

    provisioners = subprocess.run([python, "-m", "jupyter", "kernelspec", "provisioners"], **run)
    assert "gpushare" in provisioners.stdout + provisioners.stderr

    loads = "import IPython; s = IPython.InteractiveShell.instance(); s.run_line_magic('load_ext', 'jupyter_gpushare')"
    subprocess.run([python, "-W", "error", "-c", loads], **run)

    verbs = subprocess.run([python, "-m", "jupyter", "gpushare", "--help"], **run)
    assert all(verb in verbs.stdout for verb in ("demo", "status", "doctor"))
