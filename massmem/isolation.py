"""Work whose cost strangers' input decides, in worker processes with limits of time, memory and output.

`re`, pypdf and others cannot be interrupted, and hold the interpreter for all threads: only a process can be ended.
Each worker is a child with pipes of its own, from which it learns that its parent has ended. `multiprocessing`, and
pebble above it, would run the user's main program again in each worker, and would share one pipe between workers: one
that is killed while it reads or writes stops them all.
"""

import asyncio
import atexit
import ctypes
import faulthandler
import logging
import math
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from threading import Condition, Lock, Thread, Timer
from types import TracebackType
from typing import IO, Any, TypeVar

from massmem.core.errors import BusyError, InputError, MachineError, MassmemError

log = logging.getLogger(__name__)

MAX_RESULT = 64_000_000
"""Bytes of a pickled result."""
MAX_WAITING = 64
"""Tasks of all callers that wait for a worker."""
_MAX_MEMORY = 1_000_000_000
"""Bytes of address space beyond those that a worker starts with."""
_TOO_DEEP = "is nested too deeply"
_TOO_MUCH_MEMORY = f"needs more than {_MAX_MEMORY / 1e9:g} GB of memory"
_LONG = 1.0
"""Seconds of work after which a worker is replaced: what it has allocated, and keeps in caches, ends with it."""
_WORKERS = 2
_MAX_WAIT = 15.0
"""Seconds that a task waits for a worker, at most."""
_START_SECONDS = 60.0
_IDLE_SECONDS = 120.0
"""After which a worker ends."""
_FAILURES = (OSError, pickle.PickleError, AttributeError, TypeError, ValueError, RuntimeError, MemoryError, ImportError)
"""Of pickling, and of starting a process or a thread: the task's, not the pool's."""
_TRY_AGAIN = "try again in a minute"
_SMALLER = "give a smaller or simpler one"

T = TypeVar("T")


async def run_isolated(
    function: Callable[..., T], *args: Any, what: str, seconds: float = 20, caller: str | None = None
) -> T:
    """Call a function of a module in a worker process; return its result, or raise its MassmemError.

    Arguments and result are pickled. When the caller is cancelled, the work ends.

    what: what the input is called in messages, such as the name of a file. seconds: of the work; waiting for a worker
    comes on top. caller: who sent the input. A named caller never has the last worker, and waits a limited time;
    callers are served in turn. None: the user of this machine, or the service itself.

    Raises:
        InputError: the work takes longer, needs more than 1 GB of memory, has too large a result, or ends its process.
        BusyError: too many tasks are waiting.
    """
    task = _Task(function, args, what, seconds, caller)
    _get_pool().submit(task)
    try:
        return await asyncio.wrap_future(task.future)
    finally:
        task.cancel()


def call_isolated(
    function: Callable[..., T], *args: Any, what: str, seconds: float = 20, caller: str | None = None
) -> T:
    """Do the same in a thread, and wait. Raises as `run_isolated`."""
    task = _Task(function, args, what, seconds, caller)
    _get_pool().submit(task)
    try:
        return task.future.result()
    finally:
        task.cancel()


def run_program(command: Sequence[str], seconds: float) -> "subprocess.CompletedProcess[str]":
    """Run a program that ends with this process, and return what it wrote. Raises as `run_isolated`."""
    run = partial(subprocess.run, command, env=dict(os.environ), capture_output=True, text=True, check=False)
    return call_isolated(run, what=command[0], seconds=seconds)


_GUARD = '{ cat; exec >&-; sleep 1; kill -KILL 0; } | { "$@"; kill -KILL 0; }'
"""cat ends when our end of the pipe is closed; then the program has a second. 0 is the group, which is its own."""


def guard_command(command: Sequence[str]) -> list[str]:
    """Return the command of a small shell that ends the program's whole group of processes as soon as its standard
    input is closed, as it is when this process has ended, and as soon as the program itself has ended.

    Start it in a session of its own.
    """
    shell = shutil.which("sh")
    return [shell, "-c", _GUARD, "massmem", *command] if shell else [*command]


@dataclass(slots=True, eq=False)
class _Task:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    what: str
    seconds: float
    caller: str | None
    future: Future[Any] = field(default_factory=Future[Any])
    since: float = field(default_factory=time.monotonic)
    worker: "_Worker | None" = None

    def cancel(self) -> None:
        """End the work unless it is done."""
        if not self.future.cancel() and not self.future.done() and (worker := self.worker):
            worker.kill(self)


class _Pool:
    """Threads, each with a worker process that is started when there is something to do."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: dict[str | None, deque[_Task]] = {}
        """By caller; the first one is served next."""
        self._running = Counter[str | None]()
        self._workers: set[_Worker] = set()
        self._ready = 0
        """Threads that wait with a worker: they come first, since a start costs a third of a second."""
        for _ in range(_WORKERS):
            Thread(target=self._serve, name="isolation", daemon=True).start()
        atexit.register(self._end)

    def submit(self, task: _Task) -> None:
        """Raise BusyError when too many tasks wait."""
        with self._changed:
            waiting = sum(not other.future.cancelled() for tasks in self._waiting.values() for other in tasks)
            if task.caller is not None and waiting >= MAX_WAITING:
                raise BusyError(f"too much is being read at the moment, {task.what} has to wait", _TRY_AGAIN)
            self._waiting.setdefault(task.caller, deque()).append(task)
            self._changed.notify_all()

    def _wait_for_task(self, *, has_worker: bool) -> _Task | None:
        """Return None when there was none for a while."""
        with self._changed:
            self._ready += has_worker
            task = self._changed.wait_for(
                lambda: self._take_task() if has_worker or not self._ready else None, _IDLE_SECONDS
            )
            self._ready -= has_worker
            self._changed.notify_all()
            return task

    def _take_task(self) -> _Task | None:
        for caller, tasks in self._waiting.items():
            if caller is None or self._running[caller] < _WORKERS - 1:
                task = tasks.popleft()
                del self._waiting[caller]
                if tasks:
                    self._waiting[caller] = tasks
                self._running[caller] += 1
                return task
        return None

    def _serve(self) -> None:
        worker: _Worker | None = None
        while True:
            task = self._wait_for_task(has_worker=worker is not None)
            if task is not None:
                worker = self._carry_out(task, worker)
                with self._changed:
                    self._running[task.caller] -= 1
                    self._changed.notify_all()
            elif worker is not None:
                self._discard(worker)
                worker = None

    def _carry_out(self, task: _Task, worker: "_Worker | None") -> "_Worker | None":
        """Set the task's result. Return the worker if it can take another task."""
        if not task.future.set_running_or_notify_cancel():
            return worker
        try:
            if task.caller is not None and time.monotonic() - task.since > _MAX_WAIT:
                raise BusyError(f"too much is being read at the moment, {task.what} has to wait", _TRY_AGAIN)
            if worker is None:
                worker = _Worker()
                self._workers.add(worker)
            task.worker = worker
            result = worker.run(task)
        except (MassmemError, *_FAILURES) as e:
            task.future.set_exception(e)
        else:
            task.future.set_result(result)
        if worker is not None and not worker.can_go_on:
            self._discard(worker)
            return None
        return worker

    def _discard(self, worker: "_Worker") -> None:
        worker.end()
        self._workers.discard(worker)

    def _end(self) -> None:
        for worker in tuple(self._workers):
            worker.kill()


@cache
def _get_pool() -> _Pool:
    return _Pool()


class _Worker:
    """A worker process, seen from its parent."""

    def __init__(self) -> None:
        """Raises MachineError, OSError: it cannot be started."""
        self._lock = Lock()
        self._task: _Task | None = None
        self.can_go_on = True
        # A file called `json.py` in the working directory is not to be imported (-P).
        command = [sys.executable, "-P", "-c", f"from {__name__} import {_serve_calls.__name__} as serve; serve()"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        if self._exchange(b"", _START_SECONDS) is None:
            self.end()
            raise MachineError("a worker process does not start", f"is {sys.executable} whole?")

    def run(self, task: _Task) -> Any:
        """Raises MassmemError: of the function, or for a limit that was passed; what `pickle` raises."""
        try:
            message = pickle.dumps((task.seconds, task.function, task.args))
        except RecursionError as e:
            raise InputError(f"{task.what} {_TOO_DEEP}", _SMALLER) from e
        began = time.monotonic()
        self._task = task
        reply = self._exchange(message, task.seconds)
        seconds = time.monotonic() - began
        with self._lock:
            self._task = None
            self.can_go_on = self.can_go_on and seconds < _LONG
        if reply is None:
            raise self._explain_end(task, seconds)
        outcome, value = pickle.loads(reply)
        match outcome:
            case "result":
                return value
            case "error":
                kind, arguments, state = value  # a class may be made from other arguments than those that it shows
                error = kind.__new__(kind, *arguments)
                error.__dict__.update(state)
                raise error
            case "crash":
                self.can_go_on = False
                log.error("a worker process failed: %s", value)
                raise InputError(f"{task.what} cannot be read: the program for it failed", _SMALLER)
            case _:
                raise InputError(f"{task.what} {value}", _SMALLER)

    def kill(self, task: _Task | None = None) -> None:
        """End it and what it has started, whatever it is doing; with a task, only while it works on that."""
        with self._lock:
            if task is not None and task is not self._task:
                return
            self.can_go_on = False
            if self._process.returncode is not None:
                return  # not `poll`: until it is waited for, its number is that of the group that it leaves behind
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill it, and wait. Return its exit code."""
        self.kill()
        with suppress(OSError), self._process:  # what was not written yet has no reader any more
            pass
        return self._process.wait()

    def _exchange(self, message: bytes, seconds: float) -> bytes | None:
        """Return the reply to a message, None when the process has ended or takes too long. "" waits for its start."""
        assert self._process.stdin and self._process.stdout
        watchdog = Timer(seconds, self.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            if message:
                _write(self._process.stdin, message)
            return _read(self._process.stdout)
        except OSError:
            return None
        finally:
            watchdog.cancel()

    def _explain_end(self, task: _Task, seconds: float) -> InputError:
        code = self.end()
        if seconds >= task.seconds or (sys.platform != "win32" and -code in (signal.SIGALRM, signal.SIGXCPU)):
            return InputError(f"{task.what} takes longer than {task.seconds:g} s", _SMALLER)
        log.error("a worker process ended with exit code %s", code)
        if sys.platform != "win32" and -code in (signal.SIGABRT, signal.SIGKILL):  # by the allocator, or by the kernel
            return InputError(f"{task.what} {_TOO_MUCH_MEMORY}", _SMALLER)
        return InputError(f"{task.what} cannot be read: it ended the program for it", _SMALLER)


def _write(target: IO[bytes], message: bytes) -> None:
    pickle.dump(message, target)
    target.flush()


def _read(source: IO[bytes]) -> bytes | None:
    """Return the next message, None at the end."""
    try:
        return pickle.load(source)
    except (EOFError, pickle.UnpicklingError):
        return None


def _serve_calls() -> None:
    """Be a worker: read calls from standard input, and write what they return to standard output."""
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("r+b") as nothing:
        for descriptor in (0, 1):  # a library may print, and a program that it starts may read
            os.dup2(nothing.fileno(), descriptor)
    _limit_process()

    def report_crash(kind: type[BaseException], _: BaseException, trace: TracebackType | None) -> None:
        # The message may quote the input, which does not belong into a log.
        where = "".join(traceback.format_tb(trace))
        _write(target, pickle.dumps(("crash", f"{kind.__name__}\n{where}")))

    sys.excepthook = report_crash
    _write(target, b"ready")
    while message := _read(source):
        _write(target, _call(message, source.fileno()))


def _call(message: bytes, source: int) -> bytes:
    """Return the pickled outcome of a call and what belongs to it."""
    try:
        seconds, function, args = pickle.loads(message)
        with _limit_call(source, seconds):
            reply = pickle.dumps(("result", function(*args)))
    except MassmemError as e:
        reply = pickle.dumps(("error", (type(e), e.args, e.__dict__)))
    except MemoryError:
        reply = pickle.dumps(("failure", _TOO_MUCH_MEMORY))
    except RecursionError:
        reply = pickle.dumps(("failure", _TOO_DEEP))
    if len(reply) > MAX_RESULT:
        return pickle.dumps(("failure", f"has too large a result: more than {MAX_RESULT:,} bytes"))
    return reply


# Limits that the kernel holds, whatever the worker computes and whether its parent is there or not.


def set_death_signal(parent: int) -> None:
    """End this process if its parent has ended; on Linux when the thread that started it does, even if it is stuck."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _limit_process() -> None:
    if sys.platform == "win32":
        return
    import resource

    os.nice(5)  # before strangers' files come the service and its other users
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGALRM, signal.SIGXCPU, signal.SIGIO, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if (sizes := Path("/proc/self/statm")).exists():  # on Linux; others do not hold this limit
        most = int(sizes.read_text().split()[0]) * resource.getpagesize() + _MAX_MEMORY
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))


@contextmanager
def _limit_call(source: int, seconds: float) -> Generator[None]:
    """source: the pipe of the parent, which closes when the parent ends."""
    if sys.platform == "win32":
        yield
        return
    import fcntl
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = math.ceil(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard < 0 else min(most, hard), hard))
    signal.setitimer(signal.ITIMER_REAL, seconds + 1)
    # The signal comes when the parent's end of the pipe closes, and ends this process and the programs that it runs.
    flags = fcntl.fcntl(source, fcntl.F_GETFL)
    fcntl.fcntl(source, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(source, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([source], [], [], 0)[0]:
        os._exit(1)  # it has closed before; nothing else is sent meanwhile
    try:
        yield
    finally:
        fcntl.fcntl(source, fcntl.F_SETFL, flags)
        signal.setitimer(signal.ITIMER_REAL, 0)


_WATCH = """
import os, select, signal, sys, time
if os.read(0, 65536):
    end = time.monotonic() + float(sys.argv[2])
    while (left := end - time.monotonic()) > 0:
        if select.select([0], [], [], left)[0] and not os.read(0, 65536):
            sys.exit()
    os.kill(int(sys.argv[1]), signal.SIGKILL)
"""
"""Waits for the first byte, then for the end of the pipe: the process has ended by itself."""

_watchers: list[subprocess.Popen[bytes]] = []


def end_in_time(seconds: float) -> None:
    """Let SIGTERM and SIGINT end this process within so many seconds, whatever it is doing.

    The handler of faulthandler is in C, and runs at once: it writes to a small process, which waits and kills. Call
    this when all other handlers are set: they go on to run, but each that is set later would replace this one.
    """
    if _watchers or not hasattr(faulthandler, "register"):  # Windows
        return
    command = [sys.executable, "-I", "-S", "-c", _WATCH, str(os.getpid()), str(seconds)]
    # A session of its own: Ctrl-C in a terminal is not for it.
    watcher = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert watcher.stdin is not None
    _watchers.append(watcher)
    for number in (signal.SIGTERM, signal.SIGINT):
        faulthandler.register(number, watcher.stdin, all_threads=False, chain=True)
