"""Compile a program with the toolkit and look at what came out: machine code, and no PTX."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from twinspark.host import note

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--home", type=Path, required=True, help="the toolkit (CUDA_HOME)")
    parser.add_argument(
        "--source",
        type=Path,
        required=True,
        help="a .cu file; its program and probe.json lie beside it",
    )
    parser.add_argument(
        "--complete", action="store_true", help="add to a toolkit of wheels what linkers look for"
    )
    parser.add_argument("--arch", default="sm_121a", help="architecture (default: %(default)s)")


def complete(home: Path) -> list[str]:
    """Add what wheels leave out and linkers look for; return what was made.

    FlashInfer links with `-L$CUDA_HOME/lib64 -L$CUDA_HOME/lib64/stubs -lcudart -lcuda`; wheels have
    `lib/`, versioned names and no stub. The stub is empty: the driver's library is loaded later.
    """
    made: list[str] = []
    library = home / "lib"
    for path in sorted(library.glob("lib*.so.*")):
        plain = library / (path.name.split(".so.")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(path.name)
            made.append(plain.name)
    if not (home / "lib64").exists():
        (home / "lib64").symlink_to("lib")
        made.append("lib64")
    stub = library / "stubs" / "libcuda.so"
    if not stub.exists():
        stub.parent.mkdir(exist_ok=True)
        words = ["c++", "-shared", "-Wl,-soname,libcuda.so.1", "-x", "c++", "/dev/null"]
        subprocess.run([*words, "-o", str(stub)], check=True, capture_output=True, text=True)
        made.append("stubs/libcuda.so")
    return made


def links(home: Path, scratch: Path) -> bool:
    """Tell whether a library links as FlashInfer links its own."""
    places = [f"-L{home}/lib64", f"-L{home}/lib64/stubs", "-lcudart", "-lcuda"]
    words = ["c++", "-shared", "-x", "c++", "/dev/null", "-Wl,--no-as-needed", *places]
    done = subprocess.run([*words, "-o", str(scratch)], check=False, capture_output=True)
    scratch.unlink(missing_ok=True)
    return done.returncode == 0


def inspect(listing: str, arch: str) -> dict[str, object]:
    """Read `cuobjdump --list-elf --list-ptx`: machine code for `arch`, number of PTX parts."""
    return {
        "target": arch,
        "sass": any(
            name.endswith(f".{arch}.cubin")
            for name in re.findall(r"ELF file\s+\d+: (\S+)", listing)
        ),
        "ptx": len(re.findall(r"PTX file\s+\d+:", listing)),
    }


def fingerprint(home: Path, source: Path, arch: str) -> str:
    """Return what the compilation depends on: the program, the compiler, the architecture."""
    parts = [source.read_bytes(), (home / "bin" / "ptxas").read_bytes(), arch.encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[
        :16
    ]


def compile_once(home: Path, source: Path, arch: str) -> dict[str, object]:
    """Compile and inspect.

    Raises:
        subprocess.CalledProcessError: The compiler refused; its words are in `stderr`.
    """
    program = source.with_suffix("")
    virtual = arch.replace("sm_", "compute_")
    command = [
        str(home / "bin" / "nvcc"),
        "-gencode",
        f"arch={virtual},code={arch}",
        "-O3",
        "-std=c++17",
    ]
    subprocess.run(
        [*command, "-cudart", "static", "-o", str(program), str(source)],
        check=True,
        capture_output=True,
        text=True,
    )
    listed = subprocess.run(
        [str(home / "bin" / "cuobjdump"), "--list-elf", "--list-ptx", str(program)],
        check=False,
        capture_output=True,
        text=True,
    )
    return {**inspect(listed.stdout, arch), "links": links(home, source.with_suffix(".so"))}


def run(args: argparse.Namespace) -> int:
    """Compile unless the same has been compiled before; 0 right, 1 wrong, 2 no toolkit."""
    path = args.source.parent / "probe.json"
    try:
        mark = fingerprint(args.home, args.source, args.arch)
    except OSError as error:
        print(f"no toolkit in {args.home}: {error}")
        return 2
    before = note.read(path)
    if before.get("mark") == mark and before.get("sass") and before.get("links"):
        print(f"unchanged: {args.arch} by {before.get('nvcc')}")
        return 0
    version = re.search(r"release ([\d.]+)", _ask(args.home))
    made: dict[str, object] = {"target": args.arch, "sass": False, "ptx": 0, "links": False}
    try:
        if args.complete:
            complete(args.home)
        made = compile_once(args.home, args.source, args.arch)
    except subprocess.CalledProcessError as error:
        made["error"] = error.stderr.strip()[-400:]
    made |= {"mark": mark, "nvcc": version[1] if version else ""}
    note.write(path, made)
    print(f"compiled: {json.dumps(made, sort_keys=True)}")
    return 0 if made["sass"] and made["links"] and not made["ptx"] else 1


def _ask(home: Path) -> str:
    """Return what nvcc says about itself."""
    return subprocess.run(
        [str(home / "bin" / "nvcc"), "--version"], check=False, capture_output=True, text=True
    ).stdout
