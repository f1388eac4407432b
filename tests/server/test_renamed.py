"""A notebook that is renamed or moved while its kernel runs: its session bears the new name, also over a restart."""

from __future__ import annotations

import json

import nbformat
import pytest

from jupyter_gpushare.server.notebook import renamed


@pytest.mark.parametrize(
    ("path", "source", "target", "now"),
    [
        ("a.ipynb", "a.ipynb", "b.ipynb", "b.ipynb"),
        ("x/a.ipynb", "x/a.ipynb", "a.ipynb", "a.ipynb"),
        ("x/y/a.ipynb", "x", "z/x", "z/x/y/a.ipynb"),
        ("xy/a.ipynb", "x", "z", None),
        ("x/a.ipynb", "a.ipynb", "b.ipynb", None),
    ],
)
def test_what_a_path_is_called_after_something_was_renamed(path, source, target, now):
    assert renamed(path, source, target) == now


async def test_a_running_notebook_is_shown_by_its_new_name_and_starts_again_as_that_one_asks(
    gpu, jp_fetch, jp_root_dir, kernels, until
):
    (jp_root_dir / "work").mkdir()
    nbformat.write(nbformat.v4.new_notebook(), jp_root_dir / "work" / "Untitled.ipynb")
    opened = {"path": "work/Untitled.ipynb", "name": "Untitled.ipynb", "type": "notebook"}
    body = json.dumps(opened | {"kernel": {"name": "python3"}})
    answer = await jp_fetch("api", "sessions", method="POST", body=body)
    kernel_id = json.loads(answer.body)["kernel"]["id"]

    async def rename(source: str, target: str) -> None:
        await jp_fetch("api", "contents", *source.split("/"), method="PATCH", body=json.dumps({"path": target}))

    async def called(label: str, path: str) -> bool:
        session = await gpu("sessions", kernel_id)
        return (session["label"], session["path"]) == (label, path)

    await gpu("demands", "work", "Untitled.ipynb", method="PUT", body={"gpus": 0.5})
    await rename("work/Untitled.ipynb", "work/features.ipynb")
    await until(lambda: called("features.ipynb", "work/features.ipynb"))

    await kernels.restart_kernel(kernel_id)
    assert await called("features.ipynb", "work/features.ipynb")
    assert (await gpu("sessions", kernel_id))["demand"]["gpus"] == 0.5  # chosen under the old name
    await gpu("demands", "work", "features.ipynb", method="PUT", body={"gpus": 0.75})
    await kernels.restart_kernel(kernel_id)
    assert (await gpu("sessions", kernel_id))["demand"]["gpus"] == 0.75

    await rename("work", "paper")  # its kernel could not start there again: its folder is gone
    await until(lambda: called("features.ipynb", "paper/features.ipynb"))
