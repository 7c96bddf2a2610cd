"""Pack the real vLLM 0.27.1 with its own torch for a GPU machine without network, in parts.

Usage: bundle.py FOLDER (needs pip, zstd, about 4 GB). The wheels of wheels.txt are downloaded and
unpacked to one tree; payloads that an sm_90 card cannot run, symbol tables and unused programs are
zeroed or left out, and no code is changed. `FOLDER/parts/N/` are transfers of at most 60 MB each:
move them to /tmp/in there, then `session.sh install`.
"""

from __future__ import annotations

import mmap
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
ARCHITECTURE = 90
PART = "57M"
FATBIN_MAGIC = 0xBA55ED50
CUBIN, PTX = 2, 1
ZEROED_SECTIONS = (".symtab", ".strtab", "__nv_relfatbin")
UNUSED = re.compile(
    r"_vllm_fa2_C\.abi3\.so$|/fmha_sm100/|^vllm/vllm-rs$|/deep_gemm/_C\.cpython-3(10|11|13|14)"
    r"|^tilelang/3rdparty/composable_kernel|^mistral_common/data/|^pycountry/locales/"
    r"|libz3\.so\.4\.15$|^torch/(include/|bin/protoc|share/|test/)"
    r"|^triton/(_C/libproton\.so|instrumentation/|plugins/|FileCheck)"
    r"|^triton/backends/nvidia/bin/(cuobjdump|nvdisasm|ptxas-blackwell)$"
    r"|^triton/backends/nvidia/lib/cupti/|^nvidia_cutlass_dsl/cu12/|_cutlass_ir\.cu12\."
    r"|__pycache__|\.data/(scripts|headers)/"
)
# nvidia-cutlass-dsl adds a folder by a .pth, which is not read from PYTHONPATH folders.
SITECUSTOMIZE = """import os, sys
_dsl = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nvidia_cutlass_dsl/dsl_packages")
if os.path.isdir(_dsl) and _dsl not in sys.path:
    sys.path.insert(0, _dsl)
"""


def download(folder: Path) -> None:
    """Fetch the pinned wheels."""
    platforms = [f"manylinux_2_{n}_x86_64" for n in range(39, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    options = [word for name in platforms for word in ("--platform", name)]
    for abi in ("cp312", "abi3", "none"):
        options += ["--abi", abi]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
         "--python-version", "3.12", "--implementation", "cp", *options, "-d", folder,
         "--find-links", folder, "-r", HERE / "wheels.txt"],
        check=True,
    )  # fmt: skip


def unpack(wheel: Path, site: Path) -> None:
    """Unpack what is used of a wheel."""
    own = wheel.name.split("-")[0] + "-"
    with zipfile.ZipFile(wheel) as archive:
        for item in archive.infolist():
            name = item.filename
            if name.endswith("/") or UNUSED.search(name):
                continue
            name = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", name)
            if name.startswith(own) and ".data/" in name:
                continue
            target = site / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(item) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            target.chmod((item.external_attr >> 16 & 0o777 or 0o644) | 0o600)


def sections(data: mmap.mmap) -> list[tuple[str, int, int, int]]:
    """Name, type, offset and size of a 64-bit ELF file's sections."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    count, names = struct.unpack_from("<HH", data, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * 64) for i in range(count)]
    start = headers[names][4]
    return [
        (data[start + h[0] : data.find(b"\0", start + h[0])].decode(), h[1], h[4], h[5])
        for h in headers
    ]


def thin_container(data: mmap.mmap, start: int, end: int) -> None:
    """Zero the payloads of one fat binary that the card would not take."""
    entries, position = [], start
    while position < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", data, position)
        (architecture,) = struct.unpack_from("<I", data, position + 28)
        entries.append((kind, architecture, position + header, size))
        position += header + size
    keep = {at for kind, arch, at, _ in entries if kind == CUBIN and arch == ARCHITECTURE}
    if not keep:  # the newest PTX that the driver can compile for the card
        usable = [arch for kind, arch, *_ in entries if kind == PTX and arch <= ARCHITECTURE]
        newest = max(usable, default=None)
        keep = {at for kind, arch, at, _ in entries if kind == PTX and arch == newest}
    for _, _, at, size in entries:
        if at not in keep:
            data[at : at + size] = bytes(size)


def thin(path: Path) -> None:
    """Zero, in place and at equal size, what an ELF file carries for other cards."""
    with path.open("r+b") as handle:
        if handle.read(4) != b"\x7fELF":
            return
        with mmap.mmap(handle.fileno(), 0) as data:
            for name, kind, offset, size in sections(data):
                if kind == 8:  # no bits in the file
                    continue
                if name in ZEROED_SECTIONS or name.startswith(".debug"):
                    data[offset : offset + size] = bytes(size)
                elif name == ".nv_fatbin":
                    thin_fatbin(data, offset, offset + size)


def thin_fatbin(data: mmap.mmap, position: int, end: int) -> None:
    """Thin every container of a section."""
    while position < end - 16:
        if struct.unpack_from("<I", data, position)[0] != FATBIN_MAGIC:
            position += 8 - position % 8
            continue
        header, size = struct.unpack_from("<HQ", data, position + 6)
        thin_container(data, position + header, position + header + size)
        position += header + size


def cut(folder: Path, site: Path) -> int:
    """Compress the tree and cut it into numbered folders; returns how many."""
    parts, packed = folder / "parts", folder / "site.tar.zst"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir()
    with packed.open("wb") as out:
        tar = subprocess.Popen(
            ["tar", "--sort=name", "--owner=0", "--group=0", "-cf", "-", "."],
            cwd=site, stdout=subprocess.PIPE,
        )  # fmt: skip
        subprocess.run(["zstd", "-T2", "-6", "--long=27", "-q", "-c"], stdin=tar.stdout,
                       stdout=out, check=True)  # fmt: skip
    subprocess.run(["split", "-b", PART, "-d", packed, "part."], cwd=parts, check=True)
    found = sorted(parts.glob("part.*"))
    for number, part in enumerate(found, 1):
        (parts / str(number)).mkdir()
        part.rename(parts / str(number) / part.name)
    last = parts / str(len(found))
    shutil.copy("/usr/bin/zstd", last / "zstd")
    shutil.copy(Path("/lib/x86_64-linux-gnu/liblz4.so.1").resolve(), last / "liblz4.so.1")
    return len(found)


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    wheels, site = folder / "whl", folder / "site"
    wheels.mkdir(parents=True, exist_ok=True)
    download(wheels)
    shutil.rmtree(site, ignore_errors=True)
    for wheel in sorted(wheels.glob("*.whl")):
        unpack(wheel, site)
    (site / "z3/lib/libz3.so.4.15").symlink_to("libz3.so")
    for path in site.rglob("*.so*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size > 1 << 20:
            thin(path)
    (site / "sitecustomize.py").write_text(SITECUSTOMIZE)
    print(f"{cut(folder, site)} parts under {folder / 'parts'}")


if __name__ == "__main__":
    main()
