#!/usr/bin/env python3
"""Draws a terminal's last screen as SVG, from a real run.

    scripts/recording.py OUT.svg COMMAND...

The command runs in a pseudo terminal, so that it prints as for a person. `make recording` makes the
picture of README.md with it. Needs nothing but Python.
"""

import html
import os
import pty
import re
import sys

COLUMNS = 96
CELL = (8.4, 19)
MARGIN = 16
COLOURS = {"36": "weft", "90": "peer", "1": "bold"}
STYLE = """
.back{fill:#f6f8fa;stroke:#d1d9e0}.t{font:14px ui-monospace,SFMono-Regular,Menlo,monospace;
fill:#1f2328;white-space:pre}.weft{fill:#0969da}.peer{fill:#818b98}.bold{font-weight:700}
@media (prefers-color-scheme:dark){.back{fill:#0d1117;stroke:#3d444d}.t{fill:#e6edf3}
.weft{fill:#4493f8}.peer{fill:#656c76}}
"""


def record(command):
    """What the command prints on a terminal."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
        os.execvp(command[0], command)
    data = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        data += chunk
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
    _, status = os.waitpid(pid, 0)
    if status != 0:
        sys.exit(f"recording: {command[0]} ended with status {status}")
    return data.decode()


def lines(data):
    """The lines that remain: what a carriage return has had written over is gone."""
    for line in data.replace("\r\n", "\n").rstrip().split("\n"):
        yield line.rsplit("\r", 1)[-1].replace("\x1b[K", "")


def spans(line):
    """Pairs of a class and a text."""
    style, parts = "", re.split(r"\x1b\[(\d*)m", line)
    for index, part in enumerate(parts):
        if index % 2:
            style = COLOURS.get(part, "")
        elif part:
            yield style, part


def wrapped(line):
    """The line in pieces that fit."""
    plain = re.sub(r"\x1b\[\d*m", "", line)
    if len(plain) <= COLUMNS or plain != line:
        return [line]
    cut = plain.rfind(" ", 0, COLUMNS)
    return [plain[:cut]] + wrapped("       " + plain[cut + 1 :])


def svg(data, title):
    """The picture."""
    rows = [piece for line in lines(data) for piece in wrapped(line)]
    width = round(COLUMNS * CELL[0] + 2 * MARGIN)
    height = round(len(rows) * CELL[1] + 2 * MARGIN)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{html.escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="back" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>',
    ]
    for number, row in enumerate(rows):
        y = MARGIN + CELL[1] * (number + 0.75)
        texts = "".join(
            f'<tspan class="{style}">{html.escape(text)}</tspan>' for style, text in spans(row)
        )
        out.append(f'<text class="t" x="{MARGIN}" y="{y:.1f}" xml:space="preserve">{texts}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    path, command = sys.argv[1], sys.argv[2:]
    title = "make demo, recorded from a run"
    with open(path, "w", encoding="utf-8") as file:
        file.write(svg(record(command), title))


if __name__ == "__main__":
    main()
