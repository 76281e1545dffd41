"""The forked process: what is heard of it, and that it never stays behind. Forked by an interpreter
of its own, as the command does.
"""

from pathlib import Path

from tests.commands.tiny import alone

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, signal, sys, time
from multiprocessing.connection import wait
from attnlab.processes.worker import Worker

def heard(worker, seconds=20):
    while wait(worker.sources, seconds):
        if end := worker.hear():
            return end

class Odd(Exception):
    def __init__(self, one, two): super().__init__(one)

def odd(): raise Odd("a", "b")
def leaves(): os._exit(0)
def stops(): sys.exit("why")
"""


def test_every_end_has_its_cause() -> None:
    """Also an exception that cannot be sent, an exit that nobody asked for, and a signal."""
    program = """
for work in (lambda: 3, odd, leaves, stops, lambda: os.kill(os.getpid(), signal.SIGTERM)):
    worker = Worker(work, True)
    end = heard(worker)
    print(end.cause, end.code, end.text, end.error, end.details.count("Traceback"))
    worker.stop()
"""
    assert alone(PROGRAM + program, cwd=ROOT, timeout=60).splitlines() == [
        "done 3  None 0",
        "failure 1 failed with Odd: a None 1",
        "abort 1 ended with exit code 0 None 0",
        "done 1  None 0",
        "killed 143 was killed by signal 15 None 0",
    ]


def test_it_stays_until_it_is_stopped_and_goes_with_its_parent() -> None:
    """One that does not speak waits when it is done; a parent that is killed takes it along."""
    program = """
worker = Worker(lambda: 0, False)
print(heard(worker, 0.3) is None)
worker.stop()
print(heard(worker, 5).cause, flush=True)
middle = os.fork()
if middle == 0:
    worker = Worker(lambda: time.sleep(600) or 0, True)
    print("begun", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(middle, 0)
"""
    # and all that hold its stdout are gone, or this would wait
    assert alone(PROGRAM + program, cwd=ROOT, timeout=60).split() == ["True", "killed", "begun"]
