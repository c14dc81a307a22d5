"""Headrace as a program: run, and what it answers."""

import io
import json
import os
import subprocess
import sys
import tempfile


def ask(headrace: str, text: str, *options: str, form: str = "json", seconds: float = 60) -> subprocess.CompletedProcess:
    """Runs statements, which it reads from its input."""
    command = [headrace, "--quiet", "--format", form, *options]
    return subprocess.run(command, input=text.encode(), capture_output=True, timeout=seconds, check=False)


def answers(text: str) -> list:
    """The answers in JSON that a process printed, each a list of rows in their order, floats and decimals as text."""
    decoder, at, found = json.JSONDecoder(parse_float=str), 0, []
    text = text.strip()
    while at < len(text):
        try:
            rows, at = decoder.raw_decode(text, at)
        except ValueError:
            # The process ended in the middle of it.
            break
        found.append([tuple(row.values()) for row in rows])
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def table(headrace: str, text: str, *options: str):
    """The answer of one statement that must have one, as an Arrow table."""
    import pyarrow as pa

    done = ask(headrace, text, *options, form="arrow", seconds=600)
    if done.returncode != 0:
        sys.exit(f"error: headrace exited with {done.returncode}: {done.stderr.decode()}")
    return pa.ipc.open_stream(io.BytesIO(done.stdout)).read_all()


def measured(command: list, has_output: bool = True, **more) -> tuple:
    """Exit status, output if it is wanted, errors, and the process's largest resident set in bytes, which is at least ours."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out if has_output else subprocess.DEVNULL, stderr=errors, **more)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = [file.seek(0) or file.read().decode() for file in (out, errors)]
        return process.returncode, *texts, usage.ru_maxrss * 1024
