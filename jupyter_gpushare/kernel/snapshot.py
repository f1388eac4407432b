"""A namespace as files in a folder, and back: how a session's variables get to another machine.

All of them are one pickle (dill's, so functions and classes of cells are in it), so what they share they share after.
The data of NumPy arrays lies beside it as it is (protocol 5's out-of-band buffers); tensors of PyTorch, CuPy and JAX
are written by their own savers. The manifest is renamed into its place last: a folder without one holds nothing.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import random
import sys
import threading
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import Refused
from ..units import format_bytes

MANIFEST, OBJECTS, BUFFERS, TORCH = "manifest.json", "objects", "buffers", "torch"
FORMAT = 1
PIECE = 1 << 24  # bytes written at a time: progress is told between two
SPARE = 64 << 20  # bytes of disk to leave free
PYTHON = "{}.{}".format(*sys.version_info)

Tell = Callable[[int], None]  # how many bytes are written, or read, by now


class CannotGo(Exception):
    """Something that lives in this process alone; its text says what."""


class Checked(NamedTuple):
    """What a snapshot would hold: bytes by name, about; and by name why one cannot be carried."""

    sizes: dict[str, int]
    left: dict[str, str]

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def check(variables: Mapping[str, Any]) -> Checked:
    """Pickles each variable into nothing: what it takes, or why it cannot go. Writes no file."""
    sizes, left = {}, {}
    for name, value in variables.items():
        counted = _Counted()
        try:
            pickler = _pickler(counted, counted.buffer)
            pickler.dump(value)
        except CannotGo as error:
            left[name] = str(error)
        except Exception as error:  # noqa: BLE001 whatever the classes of others raise: that one cannot go
            left[name] = f"{_kind(value)} ({_one_line(error)})"
        else:
            sizes[name] = counted.bytes + sum(tensor.nbytes for tensor in pickler.apart.all())
    return Checked(sizes, left)


def check_room(folder: Path, needed: int) -> None:
    """Raises Refused where the disk has no room for so many bytes."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < needed + needed // 10 + SPARE:
        raise Refused(f"{folder} has {format_bytes(free)} free, and about {format_bytes(needed)} are to be written.")


def save(variables: Mapping[str, Any], folder: Path, tell: Tell = lambda _: None, around: object = None) -> int:
    """Writes them; the bytes that were written. `around`: more to keep, as JSON.

    Raises OSError, and what a class raises that pickled a moment before and does not now.
    """
    written = _Written(folder, tell)
    with written.open(OBJECTS) as objects, written.open(BUFFERS) as buffers:
        sizes: list[int] = []

        def beside(buffer: Any) -> None:
            raw = buffer.raw()
            sizes.append(raw.nbytes)
            buffers.write(raw)

        pickler = _pickler(objects, beside)
        pickler.dump({"variables": dict(variables), "random": _random_state()})
    pickler.apart.save(written)
    manifest = {
        "format": FORMAT,
        "python": PYTHON,
        "names": sorted(variables),
        "buffers": sizes,
        "files": written.sizes(),
        "apart": pickler.apart.files(),
        "around": around,
    }
    part = folder / f"{MANIFEST}.part"
    with part.open("w") as file:
        json.dump(manifest, file)
        file.flush()
        os.fsync(file.fileno())
    part.rename(folder / MANIFEST)
    return written.bytes


def load(folder: Path, tell: Tell = lambda _: None) -> tuple[dict[str, Any], Any]:
    """The variables, and what was kept with them.

    Raises Refused for a folder that is not whole, and what a class raises that cannot be made here.
    """
    import dill

    manifest = _manifest(folder)
    apart = _Apart()
    apart.load(folder, manifest["apart"])
    read = sum(manifest["files"].get(name, 0) for name in manifest["apart"])
    tell(read)

    def beside() -> Iterable[bytearray]:
        nonlocal read
        with (folder / BUFFERS).open("rb") as file:
            for size in manifest["buffers"]:
                buffer, begun = bytearray(size), 0
                view = memoryview(buffer)
                while begun < size:
                    count = file.readinto(view[begun : begun + PIECE])
                    if not count:
                        raise Refused(f"{folder / BUFFERS} ends too early.")
                    begun, read = begun + count, read + count
                    tell(read)
                yield buffer

    class Unpickler(dill.Unpickler):  # type: ignore[misc]
        def persistent_load(self, pid: tuple[str, Any]) -> Any:
            return _found(pid, apart)

    with (folder / OBJECTS).open("rb") as file:
        found = Unpickler(file, buffers=beside()).load()
    _set_random_state(found["random"])
    return found["variables"], manifest["around"]


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        sizes = {name: (folder / name).stat().st_size for name in manifest["files"]}
    except (OSError, ValueError, KeyError) as error:
        raise Refused(f"There is no whole snapshot in {folder} ({error}).") from None
    if manifest["format"] != FORMAT or manifest["python"] != PYTHON:
        raise Refused(f"The snapshot is of Python {manifest['python']}; this kernel has {PYTHON}.")
    if sizes != manifest["files"]:
        raise Refused(f"The snapshot in {folder} is not whole: some of its files are shorter than they were.")
    return manifest  # type: ignore[no-any-return]


# --- what is pickled, and what is not --------------------------------------------------------------------------------


def _pickler(file: Any, beside: Callable[[Any], None]) -> Any:
    """A pickler for the variables of this process; its `apart` holds the tensors that it met. Raises CannotGo."""
    try:
        import dill
    except ImportError:
        raise Refused("dill is missing in this kernel's environment: pip install 'jupyter-gpushare[move]'.") from None

    class Pickler(dill.Pickler):  # type: ignore[misc]
        def persistent_id(self, value: Any) -> tuple[str, Any] | None:
            if value is main:
                return "main", None
            kind = type(value)
            if kind in plain:
                return None
            if kind is types.ModuleType:
                return "module", value.__name__
            for name in ("stdout", "stderr"):
                if value is getattr(sys, name):
                    return "stream", name
            what = _alive(value)
            if what is not None:
                raise CannotGo(what)
            return self.apart.put(value)

    plain = {int, float, complex, bool, str, bytes, list, dict, tuple, set, frozenset, type(None)}
    main = sys.modules["__main__"].__dict__
    pickler = Pickler(file, protocol=5, buffer_callback=beside)
    pickler.apart = _Apart()
    return pickler


def _found(pid: tuple[str, Any], apart: _Apart) -> Any:
    kind, which = pid
    if kind == "main":
        return sys.modules["__main__"].__dict__
    if kind == "module":
        return sys.modules["__main__"] if which == "__main__" else importlib.import_module(which)
    if kind == "stream":
        return getattr(sys, which)
    return apart.get(kind, which)


def _alive(value: Any) -> str | None:
    """What it is, where it lives in this process only; None: it can be tried."""
    if isinstance(value, io.IOBase) and not isinstance(value, io.BytesIO | io.StringIO):
        return "an open file"
    for module, name, what in ALIVE:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(value, kind):
            return what
    return None


ALIVE = (  # module, class, what it is
    ("threading", "Thread", "a thread"),
    ("types", "GeneratorType", "a generator"),
    ("types", "CoroutineType", "a coroutine"),
    ("types", "AsyncGeneratorType", "a generator"),
    ("types", "FrameType", "a frame of a running function"),
    ("types", "TracebackType", "a traceback"),
    ("socket", "socket", "a socket"),
    ("subprocess", "Popen", "a process"),
    ("multiprocessing.process", "BaseProcess", "a process"),
    ("multiprocessing.pool", "Pool", "a pool of processes"),
    ("concurrent.futures", "Executor", "a pool of threads or processes"),
    ("asyncio", "Future", "an asyncio task"),
    ("asyncio", "AbstractEventLoop", "an event loop"),
    ("mmap", "mmap", "a memory map"),
)


class _Apart:
    """Tensors that are not in the pickle. Each is there once, whoever refers to it."""

    def __init__(self) -> None:
        self._kept: dict[str, list[Any]] = {"torch": [], "cupy": [], "jax": []}
        self._seen: dict[int, tuple[str, int]] = {}

    def all(self) -> Iterable[Any]:
        return (tensor for kept in self._kept.values() for tensor in kept)

    def put(self, value: Any) -> tuple[str, int] | None:
        """Where it is kept; None: it is no tensor. Raises CannotGo for one that is part of a computation."""
        if id(value) in self._seen:
            return self._seen[id(value)]
        for library, name in (("torch", "Tensor"), ("cupy", "ndarray"), ("jax", "Array")):
            kind = getattr(sys.modules.get(library), name, None)
            if kind is None or not isinstance(value, kind):
                continue
            if getattr(value, "grad_fn", None) is not None:
                raise CannotGo("a tensor with the graph of its computation (keep .detach() of it)")
            self._kept[library].append(value)
            self._seen[id(value)] = library, len(self._kept[library]) - 1
            return self._seen[id(value)]
        return None

    def get(self, library: str, which: int) -> Any:
        return self._kept[library][which]

    def files(self) -> list[str]:
        names = [f"{library}-{number}" for library in ("cupy", "jax") for number in range(len(self._kept[library]))]
        return ([TORCH] if self._kept["torch"] else []) + names

    def save(self, written: _Written) -> None:
        """By each library's own saver; all of PyTorch's in one call, so those that share memory share it after."""
        tensors = self._kept["torch"]
        if tensors:
            grads = [getattr(tensor, "grad", None) for tensor in tensors]
            with written.open(TORCH) as file:
                sys.modules["torch"].save({"tensors": tensors, "grads": grads}, file)
        for library, module in (("cupy", "cupy"), ("jax", "jax.numpy")):
            for number, array in enumerate(self._kept[library]):
                with written.open(f"{library}-{number}") as file:
                    importlib.import_module(module).save(file, array)

    def load(self, folder: Path, names: Iterable[str]) -> None:
        for name in names:
            library = name.partition("-")[0]
            with (folder / name).open("rb") as file:
                if library == "torch":
                    saved = importlib.import_module("torch").load(file, weights_only=False)
                    self._kept["torch"] = saved["tensors"]
                    for tensor, grad in zip(saved["tensors"], saved["grads"], strict=True):
                        if grad is not None:
                            tensor.grad = grad
                else:
                    module = "cupy" if library == "cupy" else "jax.numpy"
                    self._kept[library].append(importlib.import_module(module).load(file))


def _random_state() -> dict[str, Any]:
    """So that the next random number is the one that would have come."""
    state: dict[str, Any] = {"random": random.getstate()}
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)
    if numpy_random is not None:
        state["numpy"] = numpy_random.get_state()
    torch = sys.modules.get("torch")
    if hasattr(torch, "get_rng_state"):
        state["torch"] = torch.get_rng_state()  # type: ignore[union-attr]
    return state


def _set_random_state(state: Mapping[str, Any]) -> None:
    random.setstate(state["random"])
    if "numpy" in state:
        importlib.import_module("numpy").random.set_state(state["numpy"])
    if "torch" in state:
        importlib.import_module("torch").set_rng_state(state["torch"])


def threads_since(before: Iterable[threading.Thread]) -> list[str]:
    """The names of threads that run besides those of the kernel itself and those of `before`."""
    own = ("ipykernel", "IPython", "zmq", "tornado", "debugpy", "pydevd", "_pydevd", "jupyter_gpushare")
    known = set(before)
    found = []
    for thread in threading.enumerate():
        target = getattr(thread, "_target", None)
        modules = (type(thread).__module__, getattr(target, "__module__", "") or "")
        if thread not in known and not any(module.startswith(own) for module in modules):
            found.append(thread.name)
    return found


# --- files -----------------------------------------------------------------------------------------------------------


class _Counted:
    """Where what is written is only counted."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: Any) -> int:
        self.bytes += len(data)
        return len(data)

    def buffer(self, buffer: Any) -> None:
        self.bytes += buffer.raw().nbytes


class _Written:
    """The files of one snapshot, and how much of it is written."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self.folder, self.bytes = folder, 0
        self._tell = tell
        self._names: list[str] = []

    def open(self, name: str) -> _File:
        self._names.append(name)
        return _File(self, self.folder / name)

    def took(self, count: int) -> None:
        before, self.bytes = self.bytes, self.bytes + count
        if before // PIECE != self.bytes // PIECE:
            self._tell(self.bytes)

    def sizes(self) -> dict[str, int]:
        return {name: (self.folder / name).stat().st_size for name in self._names}


class _File(io.RawIOBase):
    """One of them: new, its owner's alone, and on the disk when it is closed."""

    def __init__(self, written: _Written, path: Path) -> None:
        self._written = written
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for begin in range(0, len(view), PIECE):
            piece = view[begin : begin + PIECE]
            self._file.write(piece)
            self._written.took(len(piece))
        return len(view)

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()
            super().close()


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
