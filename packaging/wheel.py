"""Writes the Python wheel of a release: wheel.py RELEASE VERSION ARCH GLIBC DIR.

`weft`, which carries its libraries, goes below the environment's prefix, as in the archive; beside
it is the module `weft_rdma` of packaging/python. The same files give the same bytes.
"""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

MODULE = pathlib.Path(__file__).parent / "python" / "weft_rdma"
METADATA = """\
Metadata-Version: 2.1
Name: weft-rdma
Version: {version}
Summary: RDMA over any IP network, in user space: the weft command, and a fixture for pytest
License: MIT OR Apache-2.0
Requires-Python: >=3.8
Classifier: Framework :: Pytest
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: System :: Networking
Description-Content-Type: text/markdown

{readme}"""
WHEEL = """\
Wheel-Version: 1.0
Generator: weft
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = """\
[pytest11]
weft = weft_rdma.pytest_plugin
"""


def files_of(release, version):
    """Names in the wheel, with contents and modes."""
    data = f"weft_rdma-{version}.data"
    for path in sorted(MODULE.glob("*.py")):
        yield f"weft_rdma/{path.name}", path.read_bytes(), 0o644
    for path in sorted(release.rglob("*")):
        place = path.relative_to(release)
        if not path.is_file() or place.parts[0] not in ("bin", "share"):
            continue
        if place.parts[0] == "bin":
            yield f"{data}/scripts/{path.name}", path.read_bytes(), 0o755
        else:
            yield f"{data}/data/{place}", path.read_bytes(), 0o644


def write(release, version, arch, glibc, to):
    major, minor = glibc.split(".")
    tag = f"py3-none-manylinux_{major}_{minor}_{arch}"
    info = f"weft_rdma-{version}.dist-info"
    readme = (MODULE.parent / "README.md").read_text()
    texts = {
        "METADATA": METADATA.format(version=version, readme=readme),
        "WHEEL": WHEEL.format(tag=tag),
        "entry_points.txt": ENTRY_POINTS,
    }
    files = list(files_of(release, version))
    files += [(f"{info}/{name}", text.encode(), 0o644) for name, text in texts.items()]
    record = "".join(f"{name},sha256={digest(what)},{len(what)}\n" for name, what, _ in files)
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    made = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))
    name = to / f"weft_rdma-{version}-{tag}.whl"
    with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for path, what, mode in files:
            entry = zipfile.ZipInfo(path, made[:6])
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, what)


def digest(what):
    return base64.urlsafe_b64encode(hashlib.sha256(what).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    release, version, arch, glibc, to = sys.argv[1:]
    write(pathlib.Path(release), version, arch, glibc, pathlib.Path(to))
