"""The crew of processes, run for real in a process of its own: signals, deaths, orphans."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRELUDE = """
import sys, os
from portal.launch.crew import Crew, Part
from portal.launch.errors import Asked, CannotStart
from portal.launch.output import Printer
from portal.launch.process import adopt_orphans

def part(name, code, **options):
    return Part(name, [sys.executable, "-c", code], dict(os.environ), **options)

adopt_orphans()
crew = Crew(Printer())
try:
    BODY
except Asked as asked:
    crew.say(f"asked {asked}")
except CannotStart as problem:
    crew.say(f"problem: {problem}")
finally:
    crew.stop()
    crew.say("gone")
"""


def program(body: str) -> str:
    return PRELUDE.replace("    BODY", textwrap.indent(textwrap.dedent(body).strip(), "    "))


@pytest.fixture
def launch() -> Iterator[Callable]:
    started = []

    def begin(body: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", program(body)],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def line_with(process: subprocess.Popen, text: str) -> str:
    """Read on until a line holds `text`; fails at the end of the output."""
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(f"never said: {text}")


def pid_in(line: str) -> int:
    return int(line.split()[-1])


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_gone(pid: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


SLEEPER = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything(launch, number):
    process = launch(f"""
        crew.start(part("one", {SLEEPER!r}))
        while True:
            crew.pump(60)
    """)
    pid = pid_in(line_with(process, "pid"))
    os.kill(process.pid, number)
    assert line_with(process, f"asked {number.name}")
    assert line_with(process, "gone")
    assert process.wait(60) == 0
    wait_gone(pid)


def test_the_terminals_signals_reach_the_launcher_only(launch):
    """Ctrl-C goes to the whole group at once: parts are left for the launcher to end in order."""
    code = "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)"
    process = launch(f"""
        crew.start(part("one", {code!r}))
        while True:
            crew.pump(60)
    """)
    pid = pid_in(line_with(process, "pid"))
    assert os.getpgid(pid) == os.getpgid(process.pid) == process.pid
    os.killpg(process.pid, signal.SIGINT)
    rest = process.communicate(timeout=60)[0]
    assert "asked SIGINT" in rest
    assert "KeyboardInterrupt" not in rest
    wait_gone(pid)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on this machine")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_make_alone(tmp_path, number):
    """make passes neither SIGINT nor SIGHUP on; its end is noticed all the same."""
    body = f"""
        crew.start(part("one", {SLEEPER!r}))
        while True:
            crew.pump(1)
    """
    (tmp_path / "program.py").write_text(program(body))
    (tmp_path / "Makefile").write_text(f"run:\n\t@exec '{sys.executable}' program.py\n")
    process = subprocess.Popen(
        ["make", "run"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    pid = pid_in(line_with(process, "pid"))
    os.kill(process.pid, number)
    assert line_with(process, "asked SIG")
    wait_gone(pid)
    process.communicate(timeout=60)


def test_a_part_that_will_not_end_is_killed(launch):
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('pid', os.getpid(), flush=True); time.sleep(600)"
    )
    process = launch(f"""
        import portal.launch.crew as module
        module.STOP_S = 0.3
        crew.start(part("one", {code!r}))
        while True:
            crew.pump(60)
    """)
    pid = pid_in(line_with(process, "pid"))
    process.terminate()
    assert line_with(process, "did not end within")
    process.wait(60)
    wait_gone(pid)


def test_what_detached_itself_is_ended_too(launch):
    """An agent's supervisors leave its session and its parent; on a stop they end as well."""
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    print('detached', os.getpid(), flush=True)\n"
        "    time.sleep(600)\n"
        "os.wait(); time.sleep(600)\n"
    )
    process = launch(f"""
        crew.start(part("agent", {code!r}))
        while True:
            crew.pump(60)
    """)
    pid = pid_in(line_with(process, "detached"))
    process.terminate()
    assert line_with(process, "ending work that was still running")
    assert process.wait(60) == 0
    wait_gone(pid)


def test_parts_end_when_the_launcher_is_killed(launch):
    process = launch(f"""
        crew.start(part("one", {SLEEPER!r}))
        while True:
            crew.pump(60)
    """)
    pid = pid_in(line_with(process, "pid"))
    process.kill()
    wait_gone(pid)


def test_a_part_that_dies_is_said_and_started_again(launch):
    process = launch(f"""
        crew.start(part("agent", {SLEEPER!r}, restarts=True))
        while True:
            crew.pump(60)
    """)
    first = pid_in(line_with(process, "pid"))
    os.kill(first, signal.SIGKILL)
    assert line_with(process, "agent was ended by SIGKILL; starting it again in 1 s")
    assert pid_in(line_with(process, "pid")) != first


def test_what_a_killed_part_leaves_behind_is_ended_but_what_detached_itself_is_not(launch):
    code = (
        "import os, time\n"
        "for word in ('detached', 'left'):\n"
        "    if os.fork() == 0:\n"
        "        word == 'detached' and os.setsid()\n"
        "        print(word, os.getpid(), flush=True)\n"
        "        time.sleep(600)\n"
        "    time.sleep(0.2)\n"
        "print('pid', os.getpid(), flush=True); time.sleep(600)\n"
    )
    process = launch(f"""
        crew.start(part("agent", {code!r}, restarts=True))
        while True:
            crew.pump(60)
    """)
    detached = pid_in(line_with(process, "detached"))
    left = pid_in(line_with(process, "left"))
    os.kill(pid_in(line_with(process, "pid")), signal.SIGKILL)
    wait_gone(left)
    assert line_with(process, "starting it again")
    assert alive(detached)


def test_a_part_that_keeps_dying_is_given_up(launch):
    process = launch("""
        import portal.launch.crew as module
        module.MOST_RESTARTS = 1
        crew.start(part("agent", "raise SystemExit(3)", restarts=True))
        while True:
            crew.pump(60)
    """)
    assert line_with(process, "problem: agent ended with exit code 3, 2 times in a row; giving up")
    assert process.wait(60) == 0


def test_the_last_words_of_a_part_are_printed(launch):
    process = launch("""
        code = crew.finish(crew.start(part("one", "print('no end of line', end=''); exit(7)")))
        crew.say(f"code {code}")
    """)
    text = process.communicate(timeout=60)[0]
    assert "one          | no end of line\n" in text
    assert "code 7" in text


def test_a_program_that_is_not_there(launch):
    process = launch("""crew.start(Part("one", ["/nonexistent/program"], {}))""")
    assert line_with(process, "problem: one cannot be started")


def test_waiting_has_an_end(launch):
    process = launch("""crew.wait_for(lambda: False, 0.2, "It never came.")""")
    assert line_with(process, "problem: It never came.")
