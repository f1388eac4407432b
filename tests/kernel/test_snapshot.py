"""A namespace goes into a folder and comes back in another process; what cannot go is named first."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import textwrap
import threading

import pytest

pytest.importorskip("dill")

from jupyter_gpushare.errors import Refused
from jupyter_gpushare.kernel import snapshot

TORCH = """
import pickle


class Tensor:
    def __init__(self, values):
        self.values, self.grad, self.grad_fn, self.nbytes = list(values), None, None, 8 * len(values)

    def __reduce__(self):
        raise TypeError("a tensor is saved by its library")


def save(kept, file):
    plain = {"tensors": [one.values for one in kept["tensors"]], "grads": [one and one.values for one in kept["grads"]]}
    file.write(pickle.dumps(plain))


def load(file, weights_only):
    kept = pickle.loads(file.read())
    return {name: [values and Tensor(values) for values in kept[name]] for name in kept}
"""


def process(folder, code):
    """What a process prints whose `__main__` is this code."""
    (folder / "torch.py").write_text(TORCH)
    begin = "import json, sys, pathlib\nfrom jupyter_gpushare.kernel import snapshot\n"
    begin += f"sys.path.insert(0, {str(folder)!r})\nfolder = pathlib.Path({str(folder / 'saved')!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def carried(folder, made, asked):
    """What the second process prints with the variables that the first one made."""
    (folder / "saved").mkdir(mode=0o700)
    process(
        folder,
        f"{textwrap.dedent(made)}\n"
        "mine = {n: v for n, v in list(globals().items()) if not n.startswith('_') and n != 'mine'}\n"
        "checked = snapshot.check(mine)\nassert not checked.left, checked.left\nsnapshot.save(mine, folder)",
    )
    return process(folder, f"globals().update(snapshot.load(folder)[0])\n{textwrap.dedent(asked)}")


def test_arrays_functions_and_classes_of_cells_give_the_same_after(tmp_path):
    made = """
        import numpy as np
        rng = np.random.default_rng(3)
        a = rng.normal(size=(400, 300))
        same = {"a": a, "t": a.T[::2]}
        factor = 2.5

        class Model:
            '''One of a cell.'''
            def __init__(self, w): self.w = w
            def __call__(self, x): return helper(x @ self.w)

        class Wide(Model):
            def __call__(self, x): return super().__call__(x) + 1

        def helper(x): return (x * factor).sum()
        def counter():
            n = 0
            def up():
                nonlocal n
                n += 1
                return n
            return up
        up = counter(); up()
        model = Wide(np.arange(6.0).reshape(3, 2))
        np.random.seed(5); np.random.rand(3)
    """
    asked = """
        a[0, 0] = 7
        print(same["a"] is a, a.flags.writeable, isinstance(model, Model), same["t"].shape)
        print(model(np.ones((4, 3))), up(), rng.integers(1000), np.random.rand())
        factor = 0
        print(helper(np.ones(2)))
    """
    import numpy as np

    rng = np.random.default_rng(3)
    rng.normal(size=(400, 300))
    np.random.seed(5)
    np.random.rand(3)
    lines = carried(tmp_path, made, asked).splitlines()
    value = (np.ones((4, 3)) @ np.arange(6.0).reshape(3, 2) * 2.5).sum() + 1
    assert lines == ["True True True (150, 400)", f"{value} 2 {rng.integers(1000)} {np.random.rand()}", "0.0"]


def test_tensors_go_by_their_librarys_saver_and_stay_shared(tmp_path):
    made = (
        "import torch\nw = torch.Tensor([1, 2])\nw.grad = torch.Tensor([3])\nstate = {'w': w, 'b': torch.Tensor([4])}"
    )
    asked = "print(state['w'] is w, w.values, w.grad.values, state['b'].values, torch.__name__)"
    assert carried(tmp_path, made, asked) == "True [1, 2] [3] [4] torch"


def test_what_cannot_go_is_named_with_its_reason_and_nothing_is_written(tmp_path):
    with (tmp_path / "log").open("w") as file:
        thread = threading.Thread()
        mine = {
            "x": 1,
            "log": file,
            "deep": {"list": [file]},
            "t": thread,
            "g": (n for n in ()),
            "text": io.StringIO("a"),
        }
        mine["view"] = memoryview(b"abc")
        checked = snapshot.check(mine)
    assert checked.left.pop("view").startswith("a memoryview (")
    assert checked.left == {"log": "an open file", "deep": "an open file", "t": "a thread", "g": "a generator"}
    assert sorted(checked.sizes) == ["text", "x"]
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_tensor_in_the_middle_of_a_computation_is_named(tmp_path):
    made = "import torch\nw = torch.Tensor([1])\nw.grad_fn = 1\nprint(json.dumps(snapshot.check({'w': w}).left))"
    assert "the graph of its computation" in json.loads(process(tmp_path, made))["w"]


def test_its_size_is_known_before(tmp_path):
    import numpy as np

    size = snapshot.check({"a": np.zeros(10**6)}).bytes
    assert 8e6 < size < 8.1e6
    told = []
    written = snapshot.save({"a": np.zeros(10**7)}, tmp_path, told.append)
    assert 8e7 < written < 8.1e7
    assert told == sorted(told)
    assert len(told) >= 4
    with pytest.raises(Refused, match="are to be written"):
        snapshot.check_room(tmp_path, 1 << 60)


def test_a_disk_that_is_full_leaves_no_manifest(tmp_path, monkeypatch):
    import numpy as np

    def full(written, count):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(snapshot._Written, "took", full)
    with pytest.raises(OSError, match="No space left"):
        snapshot.save({"a": np.zeros(10)}, tmp_path)
    with pytest.raises(Refused, match="no whole snapshot"):
        snapshot.load(tmp_path)


def test_a_file_that_is_cut_short_is_not_loaded(tmp_path):
    snapshot.save({"a": bytearray(1000)}, tmp_path)
    with (tmp_path / snapshot.OBJECTS).open("r+b") as file:
        file.truncate(10)
    with pytest.raises(Refused, match="not whole"):
        snapshot.load(tmp_path)


def test_its_files_are_its_owners_alone(tmp_path):
    snapshot.save({"a": 1}, tmp_path)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.name != snapshot.MANIFEST} == {0o600}
