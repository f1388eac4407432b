"""The program beside a remote kernel: starts it, signals it, tells of it, and ends it when its server stays away.

Its text is sent to the other machine and run by a Python there, so: standard library only, nothing of ours, 3.6 and
later. `main` serves one line (standard input and output) from the kernel's server; for `start` it forks off the keeper
proper, a process of its own that outlives the line, and from then on only carries bytes between the two. A line that
comes later finds the keeper by its folder.

Both ways, one JSON object a line. To the keeper: ``{"do": "alive"}``, ``{"do": "signal", "number": 2}``, ``{"do":
"gate", "says": "6f00"}`` (the two bytes of the kernel's gate, in hex), ``{"do": "forget"}`` (its end was heard of).
From it: ``started`` (what `Keeper.started` says), ``log`` (text), ``refused`` (why the kernel was ended), ``exit``
(code as `subprocess` gives it), ``error``.
"""

import ctypes
import fcntl
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
MACHINES_OWN = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "XAUTHORITY", "HOSTNAME", "TMPDIR")
CONNECTION_FILE = "{gpushare_connection_file}"  # stands for its path here, in the kernel's command
FOLDER = "{gpushare_folder}"  # for the keeper's folder: in GPUSHARE_URL, quoted as there, and in GPUSHARE_GATE
GATE = "gate"  # the file there that the kernel reads before each cell
FOLDERS, PREFIX = "/tmp", "gpushare-"  # noqa: S108 its own is made anew, this user's alone; a socket's path is short
KEPT_LOG = 1 << 16  # characters of output kept while nobody listens
LINE_MAX = 1 << 24
SLOW_S = 10.0  # a line that takes nothing for so long has gone
GREETING_S = 2.0
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00"  # the beginning of ZMTP 3.0's: enough for the other side's answer
END_S = 5.0  # between asking a kernel to end and ending it
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def look(job):
    """Raises ValueError where the kernel cannot run here as it would at its server's machine."""
    user = pwd.getpwuid(os.getuid()).pw_name
    if user != job["user"]:
        raise ValueError(f"it would run as {user} there, not as {job['user']}")
    if not os.path.isdir(job["cwd"]):
        raise ValueError(f"its folder {job['cwd']} is not there")
    if job["file"] and not os.path.exists(job["file"]):
        raise ValueError(f"its notebook {job['file']} is not there")
    if shutil.which(job["program"], path=job["path"]) is None:
        raise ValueError(f"its interpreter {job['program']} is not there")


def free_ports(ip, wanted):
    """As many ports as a kernel needs, those wanted where they are free. Raises OSError where `ip` is not ours."""
    sockets = []
    try:
        for port in wanted:
            one = socket.socket()
            sockets.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((ip, port))
            except OSError:
                one.bind((ip, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def start_time(pid):
    """When the process started, as psutil's create_time says it: seconds since the epoch."""
    with open(f"/proc/{pid}/stat") as file:
        ticks = file.read().rpartition(")")[2].split()[19]
    with open("/proc/stat") as file:
        boot = next(float(line.split()[1]) for line in file if line.startswith("btime"))
    return float(ticks) / os.sysconf("SC_CLK_TCK") + boot


def mechanism(ip, port):
    """How the kernel's socket at this port is secured, as ZMTP's greeting says; None: nobody listens yet."""
    try:
        with socket.create_connection((ip, port), GREETING_S) as line:
            line.sendall(GREETING)
            heard = b""
            while len(heard) < 32:
                more = line.recv(64)
                if not more:
                    return None
                heard += more
        return heard[12:32].rstrip(b"\0").decode("ascii", "replace")
    except OSError:
        return None


class Keeper:
    """One kernel and the line to its server, if there is one. Runs until the kernel has ended and that was heard."""

    def __init__(self, job, folder, listener):
        self.folder, self.listener, self.keep_s = folder, listener, job["keep_s"]
        self.line, self.unread, self.log = None, b"", ""
        self.code = None
        self.asked_at = self.refused = None
        self.forgotten = False
        self.heard_at = time.monotonic()
        self.ip = job["ip"]
        ports = dict(zip(PORTS, free_ports(self.ip, job["ports"])))  # noqa: B905
        self.port, self.secured = ports["shell_port"], False
        file = os.path.join(folder, "kernel.json")
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump(dict(job["connection"], ip=self.ip, **ports), out)
        env = {name: value for name, value in job["env"].items() if name not in MACHINES_OWN}
        env.update((name, os.environ[name]) for name in MACHINES_OWN if name in os.environ)
        env["JPY_PARENT_PID"] = str(os.getpid())
        if "GPUSHARE_URL" in env:
            env["GPUSHARE_URL"] = env["GPUSHARE_URL"].replace(FOLDER, urllib.parse.quote(folder, safe=""))
        self.gate = os.open(os.path.join(folder, GATE), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.pwrite(self.gate, b"a\0", 0)  # ask first
        if "GPUSHARE_GATE" in env:
            env["GPUSHARE_GATE"] = env["GPUSHARE_GATE"].replace(FOLDER, folder)
        self.kernel = subprocess.Popen(  # noqa: S603 the kernelspec's own command, as its server would run it
            [part.replace(CONNECTION_FILE, file) for part in job["cmd"]],
            cwd=job["cwd"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ends_with_its_parent,
        )
        self.out = self.kernel.stdout.fileno()
        self.started = {
            "pid": self.kernel.pid,
            "created": start_time(self.kernel.pid),
            "ip": self.ip,
            "ports": ports,
            "folder": folder,
        }

    def run(self):
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while not self.over():
            watched = [self.listener, wake, *filter(None, [self.line, self.out])]
            ready = select.select(watched, [], [], 1.0 if self.secured or self.code is not None else 0.05)[0]
            if wake in ready:
                os.read(wake, 512)
            if self.listener in ready:
                self.answer()
            if self.line in ready:
                self.hear()
            if self.out in ready:
                self.tell_output()
            self.look_at_kernel()

    def over(self):
        """Whether there is nothing left to do; sees to it that a kernel without a server comes to that."""
        now = time.monotonic()
        away = now - self.heard_at > self.keep_s
        if self.code is None and away:
            self.end(now)
        return self.code is not None and (away or self.forgotten)

    def end(self, now):
        """Asks the kernel to end, once, and ends it where it does not."""
        if self.asked_at is None:
            self.asked_at = now
            self.signal(signal.SIGTERM)
        elif now - self.asked_at > END_S:
            self.signal(signal.SIGKILL)

    def signal(self, number):
        try:
            os.killpg(self.kernel.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def look_at_kernel(self):
        if self.code is not None:
            return
        if not self.secured:
            how = mechanism(self.ip, self.port)
            self.secured = how == "CURVE"
            if how not in (None, "CURVE") and self.refused is None:
                self.refused = f"its messages would not be encrypted ({how} instead of CURVE)"
                self.say(refused=self.refused)
                self.signal(signal.SIGKILL)
        code = self.kernel.poll()
        if code is not None:
            while self.out is not None and select.select([self.out], [], [], 0)[0]:
                self.tell_output()
            self.code = code
            self.say(exit=code)

    def answer(self):
        """The newest line is the server's: one before it was cut, or belonged to a server that has gone."""
        line, _ = self.listener.accept()
        if self.line is not None:
            self.line.close()
        line.settimeout(SLOW_S)
        self.line, self.unread, self.heard_at = line, b"", time.monotonic()
        self.say(started=self.started)
        log, self.log = self.log, ""
        if log:
            self.say(log=log)
        if self.refused is not None:
            self.say(refused=self.refused)
        if self.code is not None:
            self.say(exit=self.code)

    def hear(self):
        try:
            more = self.line.recv(1 << 16)
        except OSError:
            more = b""
        if not more:
            self.line.close()
            self.line = None
            return
        self.heard_at = time.monotonic()
        *lines, self.unread = (self.unread + more).split(b"\n")
        for text in lines:
            said = json.loads(text.decode())
            if said["do"] == "signal" and self.code is None:
                self.signal(said["number"])
            elif said["do"] == "gate":
                os.pwrite(self.gate, bytes.fromhex(said["says"]), 0)
            elif said["do"] == "forget":
                self.forgotten = True

    def tell_output(self):
        more = os.read(self.out, 1 << 14)
        if not more:
            self.out = None
            return
        if self.line is None:
            self.log = (self.log + more.decode("utf-8", "replace"))[-KEPT_LOG:]
        else:
            self.say(log=more.decode("utf-8", "replace"))

    def say(self, **what):
        if self.line is None:
            return
        try:
            self.line.sendall(json.dumps(what).encode() + b"\n")
        except OSError:
            self.line.close()
            self.line = None


def ends_with_its_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def keep(job, folder, listener):
    """The keeper proper, in its own process."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    try:
        try:
            keeper = Keeper(job, folder, listener)
        except Exception as error:  # noqa: BLE001 whatever it is, the server shall hear of it
            listener.settimeout(SLOW_S)
            line, _ = listener.accept()
            line.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
            return
        try:
            keeper.run()
        finally:
            keeper.signal(signal.SIGKILL)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tidied():
    """Removes what keepers of this user left who were killed: folders that nobody holds."""
    for name in os.listdir(FOLDERS):
        folder = os.path.join(FOLDERS, name)
        if not name.startswith(PREFIX):
            continue
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, or just removed
            continue
        try:
            if os.fstat(held).st_uid == os.getuid() and os.path.exists(os.path.join(folder, "line")):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its keeper lives
            pass
        finally:
            os.close(held)


def begun(job):
    """Forks off the keeper of this kernel; its folder, this user's alone."""
    tidied()
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=FOLDERS)
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)  # who tidies /tmp by age leaves what is locked
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(folder, "line"))
    listener.listen(4)
    if os.fork() == 0:
        try:
            keep(job, folder, listener)
        finally:
            os._exit(0)
    listener.close()
    return folder


def carry(folder):
    """Carries bytes between this process's line and the keeper until one of them ends."""
    with socket.socket(socket.AF_UNIX) as keeper:
        keeper.connect(os.path.join(folder, "line"))
        while True:
            ready = select.select([0, keeper], [], [])[0]
            if keeper in ready:
                more = keeper.recv(1 << 16)
                if not more:
                    return
                while more:
                    more = more[os.write(1, more) :]
            if 0 in ready:
                more = os.read(0, 1 << 16)
                if not more:
                    return
                keeper.sendall(more)


def asked():
    """The next line, read byte by byte: what follows it is not ours."""
    text = b""
    while not text.endswith(b"\n"):
        more = os.read(0, 1)
        if not more or len(text) > LINE_MAX:
            sys.exit(0)
        text += more
    return json.loads(text.decode())


def main():
    try:
        job = asked()
        if job["do"] == "look":
            look(job)
            os.write(1, b'{"looked": true}\n')
            job = asked()
        folder = begun(job) if job["do"] == "start" else job["folder"]
        if job["do"] == "attach":
            server = os.path.join(folder, "server")  # a socket that the line before brought here
            if os.path.exists(server):
                os.unlink(server)
        carry(folder)
    except Exception as error:  # noqa: BLE001 whatever it is, the server shall hear of it
        os.write(1, json.dumps({"error": str(error)}).encode() + b"\n")


if __name__ == "__main__":
    main()
