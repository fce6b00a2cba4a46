"""Programs in a process of their own."""

import subprocess
import sys
from pathlib import Path


def run_apart(program, *arguments, **options):
    """Run a program from the root of the repository; return its output.

    ``options`` are those of :func:`subprocess.run`, as ``env`` and ``timeout``.
    """
    command, root = [sys.executable, "-c", program, *arguments], Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
