"""How Jupyter on this machine starts kernels, and whether it loads our extensions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..server.interpreter import interpreter_of
from .finding import Finding


def provisioner(environ: Mapping[str, str], found: Sequence[Any]) -> Finding:
    """Whether kernels start through us: the entry point, and what the environment says of the default."""
    install = f"{sys.executable} -m pip install jupyter-gpushare"
    if not found:
        return Finding(
            check="provisioner",
            state="broken",
            finding="The kernel provisioner gpushare is not installed.",
            fix=install,
        )
    try:
        next(iter(found)).load()
    except (ImportError, AttributeError) as error:
        return Finding(
            check="provisioner",
            state="broken",
            finding="The kernel provisioner gpushare cannot be loaded, so no kernel starts.",
            cause=str(error),
            fix=install,
        )
    named = environ.get("JUPYTER_DEFAULT_PROVISIONER_NAME", "gpushare")
    if named != "gpushare":
        return Finding(
            check="provisioner",
            state="warning",
            finding=f"JUPYTER_DEFAULT_PROVISIONER_NAME is {named}.",
            cause="Outside a server with our extension (nbconvert, papermill) kernels start without us.",
            fix="Set it to gpushare, or unset it.",
        )
    return Finding(check="provisioner", state="ok", finding="gpushare, the default of servers with our extension.")


def kernelspecs() -> dict[str, dict[str, Any]]:
    """All kernelspecs by name."""
    from jupyter_client.kernelspec import KernelSpecManager

    return {name: found["spec"] for name, found in KernelSpecManager().get_all_specs().items()}


def own_provisioners(specs: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Kernelspecs that name a provisioner of their own win over the default."""
    theirs = {
        name: named
        for name, spec in specs.items()
        if (named := spec.get("metadata", {}).get("kernel_provisioner", {}).get("provisioner_name", "gpushare"))
        != "gpushare"
    }
    if not theirs:
        return Finding(check="kernelspecs", state="ok", finding=f"All {len(specs)} start through the default.")
    return Finding(
        check="kernelspecs",
        state="warning",
        finding="Not managed: " + ", ".join(f"{name} ({named})" for name, named in sorted(theirs.items())) + ".",
        cause="They name a kernel provisioner of their own, so their kernels see every GPU.",
        fix="Remove kernel_provisioner from their kernel.json, if they need not have it.",
    )


def interpreters(specs: Mapping[str, Mapping[str, Any]], has: Callable[[str], bool]) -> Finding:
    """Python kernels whose environment has our package get %gpu and wait for their GPU before a cell."""
    pythons = {
        name: sys.executable if path in ("python", f"python{sys.version_info[0]}") else path
        for name, spec in specs.items()
        if (path := interpreter_of(spec.get("argv", [])))
    }
    answers = {path: has(path) for path in sorted(set(pythons.values()))}
    without = sorted(name for name, path in pythons.items() if not answers[path])
    if not without:
        return Finding(check="kernels", state="ok", finding=f"{len(pythons)} Python kernels have %gpu.")
    return Finding(
        check="kernels",
        state="warning",
        finding=f"Without %gpu: {', '.join(without)}.",
        cause="Their environments lack this package. They get GPUs all the same, but never wait before a cell.",
        fix="; ".join(f"{path} -m pip install jupyter-gpushare" for path, there in answers.items() if not there),
    )


def enabled_extensions() -> Mapping[str, bool]:
    from jupyter_core.paths import jupyter_config_path
    from jupyter_server.extension.config import ExtensionConfigManager

    found: Mapping[str, bool] = ExtensionConfigManager(read_config_path=jupyter_config_path()).get_jpserver_extensions()
    return found


def extension(enabled: Mapping[str, bool]) -> Finding:
    if enabled.get("jupyter_gpushare"):
        return Finding(check="server extension", state="ok", finding="Enabled.")
    return Finding(
        check="server extension",
        state="broken",
        finding="Not enabled: servers start without it.",
        cause="It was disabled, or the package was installed without its configuration files.",
        fix="jupyter server extension enable jupyter_gpushare",
    )


def labextension_folders() -> list[Path]:
    from jupyter_core.paths import jupyter_path

    return [Path(folder) / "jupyter-gpushare" for folder in jupyter_path("labextensions")]


def panel(folders: Sequence[Path]) -> Finding:
    """The JupyterLab extension, which is enabled by being there."""
    for folder in folders:
        if (folder / "package.json").exists():
            return Finding(check="panel", state="ok", finding=f"{folder}.")
    return Finding(
        check="panel",
        state="warning",
        finding="The JupyterLab extension is not installed; %gpu and the commands work without it.",
        fix="pip install --force-reinstall jupyter-gpushare",
    )
