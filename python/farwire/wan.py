"""A link to a far end, for tests: commands, servers and sockets at both ends, and conditions that a test changes."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any, ContextManager, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _agent, _forked, _supervisor
from ._errors import CommandFailed, FarwireError, MachineLacks
from ._find import find_farwire_bin
from .client import Client, Condition
from .held import Fault, HeldLink
from .views import Change, Counters, Wanted

Command = Sequence[Union[str, "os.PathLike[str]"]]

#: The longest time until the link is up, and until an end answers.
_START_S = 60.0
_ANSWER_S = 30.0
#: The longest time until farwire has taken the link down.
_STOP_S = 20.0
_POLL_S = 0.01
_TOKENS = ("FARWIRE_TOKEN", "FARWIRE_READ_TOKEN")
#: What farwire says when it ends with 1 because the container of its link does not exist any more (src/emulate/inserted.rs).
_CONTAINER_GONE = "and with it the network that it belonged to"
#: The number of lines of a command's output that a message has.
_SHOWN_LINES = 40


class Process:
    """A command that runs at one end of a link. When this object is closed, the command and its group are killed.

    Its outputs can be read afterwards too.
    """

    def __init__(self, end: _End, command: Command, input: Optional[str], environment: Mapping[str, str], folder: str) -> None:
        self.args: List[str] = [os.fspath(word) for word in command]
        if not self.args:
            raise ValueError("the command is empty: write it as a list, such as ['ping', '-c', '3', wan.server]")
        self._code: Optional[int] = None
        self._lock = threading.Lock()
        self._outputs = (_Output(), _Output())
        wanted = {"command": self.args, "environment": dict(environment), "folder": folder}
        try:
            with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as stdin:
                request.write(json.dumps(wanted).encode())
                stdin.write((input or "").encode())
                request.seek(0)
                stdin.seek(0)
                files = [request.fileno(), stdin.fileno(), *[output.fileno() for output in self._outputs]]
                self._connection = end.ask({"do": "spawn"}, files)
        except BaseException:
            self._close_outputs()
            raise
        try:
            answer = _answer(self._connection, _ANSWER_S)
            if "error" in answer:
                raise CommandFailed(f"{shlex.join(self.args)}: cannot be started: {answer['error']}")
        except BaseException:
            self.close()
            raise

    @property
    def stdout(self) -> str:
        """The text that the command has written to its standard output so far, or until this object was closed."""
        return self._outputs[0].text()

    @property
    def stderr(self) -> str:
        """The text that the command has written to its standard error so far, or until this object was closed."""
        return self._outputs[1].text()

    def poll(self) -> Optional[int]:
        """Returns the exit code, or minus the number of the signal that ended the command; None while it runs."""
        return self._await(0)

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the end and returns the exit code as `poll` does.

        Raises CommandFailed if the command has not ended after `timeout` seconds. It runs on.
        """
        code = self._await(timeout)
        if code is None:
            raise CommandFailed(self._described(f"did not end within {timeout:g} s" if timeout else "runs"))
        return code

    def _await(self, timeout: Optional[float]) -> Optional[int]:
        """Returns the exit code, or None if the command has not ended after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        # Another thread may be waiting, and it holds the lock as long as it waits.
        if self._code is None and self._lock.acquire(timeout=-1 if timeout is None else timeout):
            try:
                if self._code is None:
                    left = None if end is None else max(0.0, end - time.monotonic())
                    self._code = _answer(self._connection, left)["code"]
            except TimeoutError:
                pass
            finally:
                self._lock.release()
        return self._code

    def send_signal(self, number: int) -> None:
        """Sends a signal to the command and to the processes of its group; does nothing if all have ended."""
        try:
            self._connection.send(str(int(number)).encode())
        except OSError:
            pass

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kills the command and its group if they run."""
        _forked.end(self._connection)
        self._close_outputs()

    def _close_outputs(self) -> None:
        for output in self._outputs:
            output.close()

    def check(self) -> None:
        """Raises CommandFailed if the command has ended with another code than 0."""
        code = self.poll()
        if code:
            ended = f"ended with {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
            raise CommandFailed(self._described(ended))

    def _described(self, what: str) -> str:
        parts = [f"{shlex.join(self.args)}: the command {what}"]
        for name, text in (("standard output", self.stdout), ("standard error", self.stderr)):
            lines = text.splitlines()
            if lines:
                left_out = "" if len(lines) <= _SHOWN_LINES else f", the last {_SHOWN_LINES} lines"
                parts.append("\n".join([f"{name}{left_out}:", *lines[-_SHOWN_LINES:]]))
        return "\n".join(parts)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Output:
    """What a command writes to a file, whose text remains after the file is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: IO[bytes] = tempfile.TemporaryFile()
        self._text: Optional[str] = None

    def fileno(self) -> int:
        return self._file.fileno()

    def text(self) -> str:
        """Returns the text so far."""
        with self._lock:
            return _text(self._file) if self._text is None else self._text

    def close(self) -> None:
        """Keeps the text as it is now, and closes the file. It may be called twice."""
        with self._lock:
            if self._text is None:
                self._text = _text(self._file)
                self._file.close()


class _End:
    """The test process's side of the socket to an agent."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self.socket, self._agents = _forked.socketpair()

    def command(self, folder: str) -> List[str]:
        """Returns the command of the agent."""
        return [sys.executable, "-I", "-S", _agent.__file__, str(self._agents.fileno()), folder]

    @property
    def inherited(self) -> int:
        return self._agents.fileno()

    def started(self) -> None:
        """The agent's side was inherited."""
        self._agents.close()

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> socket.socket:
        """Sends a request and returns the socket of its answers."""
        if self._owner != os.getpid():
            raise FarwireError(
                f"process {os.getpid()} cannot use the {self._name} end of the link, because it was forked from process "
                f"{self._owner}, which has started the link: start commands and make sockets there, before the fork"
            )
        mine, agents = _forked.socketpair()
        with agents:
            try:
                with self._lock:
                    socket.send_fds(self.socket, [json.dumps(request).encode()], [agents.fileno(), *descriptors])
            except OSError as error:
                mine.close()
                raise FarwireError(f"the {self._name} end of the link is gone: {error.strerror}") from error
        return mine

    def close(self) -> None:
        try:
            self.socket.send(b'{"do": "end"}')
        except OSError:
            pass
        _forked.end(self.socket)
        self._agents.close()


class Wan:
    """A far end behind a link, in network namespaces that nothing else reaches.

    `arguments` are options of `farwire exec`, such as `"--seed", "7"`. The link starts when it is used first, and ends
    with `stop`, with the `with` block, or when this process ends, however it ends. After `stop`, its next use starts a new
    link; after the `with` block, and after the test of the fixture, it raises FarwireError. Several threads may use it. A child
    that this process forks may use sockets that were made before; it can start nothing at the ends, and does not keep the
    link when this process ends.
    """

    #: The addresses of the far end.
    server = "10.77.0.2"
    server6 = "fd77::2"

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._lock = threading.RLock()
        self._is_closed = False
        #: The process that has started a link.
        self._owner: Optional[int] = None
        self._running: Optional[_Running] = None
        self._attached: List[HeldLink] = []
        self._boxes: List[_Box] = []
        self._processes: List[Process] = []
        #: What farwire wrote to standard error, after the end of the links.
        self.log = ""
        #: The summary of the link after its end, as `farwire exec --json` writes it.
        self.summary: Optional[Dict[str, Any]] = None

    def exec(
        self,
        command: Command,
        *,
        input: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Union[str, "os.PathLike[str]", None] = None,
        timeout: Optional[float] = 60.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command behind the link, and returns its exit code and its output.

        `env` is added to the environment. Raises CommandFailed if the command takes longer than `timeout` seconds, and,
        with `check`, if it ends with another code than 0. `$FARWIRE_SERVER` is the far end. At the end, the rest of the
        command's group is killed, such as what a shell has started with `&`: use `start` for what runs on.
        """
        with self._spawn(False, command, input, env, cwd) as process:
            code = process.wait(timeout)
            if check:
                process.check()
        return subprocess.CompletedProcess(process.args, code, process.stdout, process.stderr)

    def start(
        self,
        command: Command,
        *,
        input: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Union[str, "os.PathLike[str]", None] = None,
    ) -> Process:
        """Starts a command behind the link, and returns while it runs. It ends with the link at the latest."""
        return self._kept(self._spawn(False, command, input, env, cwd))

    def serve(
        self,
        command: Optional[Command] = None,
        *,
        port: Optional[int] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Union[str, "os.PathLike[str]", None] = None,
        timeout: float = 20.0,
    ) -> Process:
        """Starts a server at the far end, which ends with the link at the latest.

        With `port`, it returns when something listens there; it raises CommandFailed if the server ends before, or after
        `timeout` seconds. Without a command, the server is `farwire serve`, with HTTP on port 80.
        """
        if command is None:
            port = port or 80
            command = [find_farwire_bin(), "serve", "--no-sandbox", "--http-port", str(port)]
        process = self._kept(self._spawn(True, command, None, env, cwd))
        end = time.monotonic() + timeout
        while port is not None and not self._listens(port):
            code = process.poll()
            if code is not None:
                process.check()
                raise CommandFailed(process._described(f"ended with 0 before it listened on port {port}"))
            if time.monotonic() >= end:
                raise CommandFailed(process._described(f"did not listen on port {port} within {timeout:g} s"))
            time.sleep(_POLL_S)
        return process

    def socket(
        self,
        family: int = socket.AF_INET,
        type: int = socket.SOCK_STREAM,
        *,
        far: bool = False,
    ) -> socket.socket:
        """Returns a new socket of this process that is behind the link, or with `far` at the far end.

        It is neither bound nor connected: `s.connect((wan.server, 80))`, `loop.sock_connect(s, ...)`.
        """
        answers = self._bed().ends[far].ask({"do": "socket", "family": int(family), "type": int(type)})
        with answers:
            answers.settimeout(_ANSWER_S)
            try:
                message, descriptors, _, _ = socket.recv_fds(answers, _agent.LONGEST, _agent.MOST)
            except OSError as cause:
                raise FarwireError(f"the end of the link gives no socket: {cause or type(cause).__name__}") from cause
            if not descriptors:
                error = json.loads(message or b"{}").get("error", "the end of the link is gone")
                raise FarwireError(f"no socket of family {family} and type {type}: {error}")
            return socket.socket(fileno=descriptors[0])

    def set(self, **conditions: Condition) -> Change:
        """Changes conditions: `delay="50ms"`, `up={"rate": "1mbit"}`. None removes one, and the others stay."""
        return self.held.set(**conditions)

    def impaired(self, **conditions: Condition) -> ContextManager[Fault]:
        """Changes conditions for the time of a `with` block. At its end, those before it return."""
        return self.held.impaired(**conditions)

    def assert_met(
        self,
        *,
        dropped: Optional[Wanted] = None,
        duplicated: Optional[Wanted] = None,
        marked: Optional[Wanted] = None,
        corrupted: Optional[Wanted] = None,
        direction: Optional[str] = None,
        within: float = 1.0,
    ) -> None:
        """Raises FaultNotMet unless packets met the conditions that were set last, as `Fault.assert_met` says."""
        self.held.assert_met(
            dropped=dropped,
            duplicated=duplicated,
            marked=marked,
            corrupted=corrupted,
            direction=direction,
            within=within,
        )

    def counters(self, since: Optional[int] = None) -> Counters:
        """Returns the counters since that revision, or since the link's start."""
        return self.held.counters(since)

    def attach(
        self,
        at: Optional[str] = None,
        *,
        container: Optional[str] = None,
        network: Optional[str] = None,
        link: str = "link",
        token: Optional[str] = None,
        pin: Optional[str] = None,
    ) -> HeldLink:
        """Takes a lease on the link of another farwire, or inserts a link at a running container.

        `at` is the address of a farwire that runs with `--listen`, such as a box on the bench; `token` and `pin` are those
        of `Client`. `container` is the name of a container of Podman or Docker, and `network` one of its networks, which a
        container with several needs. That takes root. The lease ends with `release`; the link at a container, and the
        lease with it, with `stop`, or with this process. Raises MachineLacks if this machine or this user cannot.
        """
        if (at is None) == (container is None):
            raise ValueError("write the address of a farwire, or container= and the name of a container")
        # Until the link is attached, `stop` waits.
        with self._lock:
            self._check_open()
            self._owner = os.getpid()
            if at is not None:
                held = HeldLink(Client(at, token=token, pin=pin).link(link))
            else:
                options = [] if network is None else ["--network", network]
                box = _Box(["--container", str(container), *options], link)
                self._boxes.append(box)
                held = box.held
            self._attached.append(held)
            return held

    @property
    def held(self) -> HeldLink:
        """The link between the two ends."""
        return self._bed().held

    @property
    def links(self) -> List[HeldLink]:
        """Every link that is in use: the one between the two ends, and those attached."""
        with self._lock:
            return [*([self._running.held] if self._running else []), *self._attached]

    def stop(self) -> None:
        """Ends the link, all commands and all leases. Raises FarwireError if farwire failed."""
        if self._owner not in (None, os.getpid()):
            # A forked child, such as one that fails and tears its copy of the test down, must not end the test's link.
            return
        with self._lock:
            running, self._running = self._running, None
            attached, self._attached = self._attached, []
            boxes, self._boxes = self._boxes, []
            processes, self._processes = self._processes, []
        for process in processes:
            process.close()
        for held in attached:
            held.release()
        ended = [box.stop() for box in boxes]
        if running is not None:
            code, log, self.summary = running.stop()
            ended.append((code, log))
        if ended:
            self.log = "\n".join(log for _, log in ended)
        for code, log in ended:
            if code != 0:
                raise FarwireError(f"farwire failed with {code}:\n{log.strip()}")

    def __enter__(self) -> Wan:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self.stop()

    def _check_open(self) -> None:
        """Raises FarwireError if a thread that outlives the test would start something that nobody ends."""
        if self._is_closed:
            raise FarwireError("the link has ended with its test or its `with` block: join the threads that use it before")

    def _bed(self) -> _Running:
        with self._lock:
            self._check_open()
            if self._running is None:
                self._owner = os.getpid()
                self._running = _Running(self._arguments)
            return self._running

    def _kept(self, process: Process) -> Process:
        with self._lock:
            self._processes.append(process)
        return process

    def _listens(self, port: int) -> bool:
        with self._bed().ends[True].ask({"do": "listens", "port": port}) as answers:
            return bool(_answer(answers, _ANSWER_S).get("listens"))

    def _spawn(
        self,
        far: bool,
        command: Command,
        input: Optional[str],
        env: Optional[Mapping[str, str]],
        cwd: Union[str, "os.PathLike[str]", None],
    ) -> Process:
        bed = self._bed()
        environment = {**os.environ, **(env or {})}
        # Commands find the program of this package, also where nobody has activated its environment.
        path = environment.get("PATH", os.defpath)
        environment["PATH"] = os.pathsep.join([path, os.path.dirname(bed.program)])
        return Process(bed.ends[far], command, input, environment, os.fspath(cwd or os.getcwd()))


class _Running:
    """A `farwire exec` whose two commands are agents."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.program = find_farwire_bin()
        self._folder = _folder()
        #: The near end, and the far end.
        self.ends: Dict[bool, _End] = {False: _End("near"), True: _End("far")}
        api = os.path.join(self._folder, "api.sock")
        self._summary = os.path.join(self._folder, "summary.json")
        self._log: IO[bytes] = tempfile.TemporaryFile()
        command = [self.program, "exec", "--listen", f"unix:{api}", "--json", self._summary]
        command += ["--far", shlex.join(self.ends[True].command(self._folder))]
        command += [*arguments, "--", *self.ends[False].command(self._folder)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[end.inherited for end in self.ends.values()],
                env=_environment(),
                # An interrupt of the terminal is for the test process, which ends this one.
                start_new_session=True,
            )
        except OSError as error:
            self._clean_up()
            raise FarwireError(f"{self.program}: cannot be started: {error.strerror}") from error
        try:
            for end in self.ends.values():
                end.started()
                self._await_agent(end)
            self.held = HeldLink(Client(f"unix:{api}", token="").link())
        except BaseException:
            self._process.kill()
            self._process.wait()
            self._clean_up()
            raise

    def _await_agent(self, end: _End) -> None:
        try:
            _answer(end.socket, _START_S)
        except (FarwireError, TimeoutError):
            pass
        else:
            return
        try:
            code = self._process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            raise FarwireError(f"farwire did not start the link within {_START_S:g} s:\n{self._said()}") from None
        why = f"farwire exec ended with {code}:\n{self._said()}"
        raise MachineLacks(self._said()) if _machine_lacks_something(self.program) else FarwireError(why)

    def stop(self) -> Tuple[int, str, Optional[Dict[str, Any]]]:
        """Takes the link down. Returns farwire's exit code, its log, and the summary."""
        self.held.release()
        for end in self.ends.values():
            end.close()
        try:
            code = self._process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        log = self._said()
        try:
            with open(self._summary) as file:
                summary: Optional[Dict[str, Any]] = json.load(file)
        except (OSError, ValueError):
            summary = None
        self._clean_up()
        return code, log, summary

    def _said(self) -> str:
        return _text(self._log).strip()

    def _clean_up(self) -> None:
        for end in self.ends.values():
            end.close()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Box:
    """A `farwire emulate` that has inserted a link at something that runs."""

    def __init__(self, target: Sequence[str], link: str) -> None:
        program = find_farwire_bin()
        self._folder = _folder()
        api = os.path.join(self._folder, "api.sock")
        self._log: IO[bytes] = tempfile.TemporaryFile()
        command = [sys.executable, "-I", "-S", _supervisor.__file__, self._folder]
        command += [program, "emulate", *target, "--listen", f"unix:{api}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                # Without a buffer, the pipe is closed also if the goodbye cannot be written, and in forked children.
                bufsize=0,
                stdout=self._log,
                stderr=self._log,
                env=_environment(),
                # An interrupt of the terminal is for the test process, which ends this one.
                start_new_session=True,
            )
        except OSError as error:
            self._clean_up()
            raise FarwireError(f"{sys.executable}: cannot be started: {error.strerror}") from error
        assert isinstance(self._process.stdin, io.FileIO)
        _forked.close_in_children(self._process.stdin)
        try:
            self._await_socket(api)
            self.held = HeldLink(Client(f"unix:{api}", token="").link(link))
        except BaseException:
            self._end()
            self._clean_up()
            raise

    def _await_socket(self, api: str) -> None:
        """Waits until farwire answers, which it does when the link is inserted."""
        client = Client(f"unix:{api}", token="")
        end = time.monotonic() + _START_S
        while True:
            code = self._process.poll()
            if code is not None:
                why = self._said()
                # The code of farwire for a machine, or a user, that lacks something.
                raise MachineLacks(why) if code == 3 else FarwireError(f"farwire emulate ended with {code}:\n{why}")
            try:
                client.links()
                return
            except FarwireError:
                pass
            if time.monotonic() >= end:
                raise FarwireError(f"farwire did not insert the link within {_START_S:g} s:\n{self._said()}")
            time.sleep(_POLL_S)

    def stop(self) -> Tuple[int, str]:
        """Removes the link. Returns farwire's exit code and its log.

        The code is 0 if the container was removed before: pytest ends the fixtures of `def test(wan, container)` from
        the last one to the first one, so the container is always removed before the link.
        """
        self.held.release()
        code = self._end()
        log = self._said()
        self._clean_up()
        return 0 if code == 1 and _CONTAINER_GONE in log else code, log

    def _end(self) -> int:
        assert self._process.stdin is not None
        try:
            with self._process.stdin as pipe:
                pipe.write(_supervisor.GOODBYE)
        except OSError:
            # farwire has ended by itself, and so has its supervisor.
            pass
        try:
            return self._process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            # A helper of farwire restores the container.
            os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()

    def _said(self) -> str:
        return _text(self._log).strip()

    def _clean_up(self) -> None:
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _folder() -> str:
    """Makes a folder for a socket, whose path may have 107 bytes, so that the folder is not below a deep TMPDIR."""
    return tempfile.mkdtemp(prefix="farwire-", dir="/tmp" if os.path.isdir("/tmp") else None)


def _environment() -> Dict[str, str]:
    """Returns the environment of farwire. Its API is a socket of this user, for which no token is needed."""
    return {key: value for key, value in os.environ.items() if key not in _TOKENS}


def _machine_lacks_something(program: str) -> bool:
    """Asks `farwire doctor`, whose code 3 says that this machine lacks something."""
    ended = subprocess.run(
        [program, "doctor", "--json", os.devnull],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return ended.returncode == 3


def _answer(connection: socket.socket, timeout: Optional[float]) -> Dict[str, Any]:
    """Returns the next answer. Raises TimeoutError, or FarwireError if the other side is gone."""
    try:
        connection.settimeout(timeout)
        message = connection.recv(_agent.LONGEST)
    except (socket.timeout, BlockingIOError):
        raise TimeoutError(f"the end of the link does not answer within {timeout or 0:g} s") from None
    except OSError:
        message = b""
    if not message:
        raise FarwireError("the end of the link is gone: farwire was stopped, or it failed")
    answer: Dict[str, Any] = json.loads(message)
    return answer


def _text(file: IO[bytes]) -> str:
    """Returns the whole text of a file whose descriptor a command shares, and leaves the position as it is."""
    descriptor = file.fileno()
    length = os.fstat(descriptor).st_size
    return os.pread(descriptor, length, 0).decode(errors="replace")
