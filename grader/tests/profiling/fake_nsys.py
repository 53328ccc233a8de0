"""A program that behaves like nsys, as far as a1/nsys.sh can tell: see `install`.

Which release it imitates and how it fails is in a JSON file beside it, for one test each.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

PERMISSION = "Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM."
UNSUPPORTED = "None of the installed GPUs are supported:\n\tTesla V100 - Unsupported architecture"
REPORTS = {
    "nvtx_gpu_proj_trace": "nvtxgpuproj",
    "cuda_gpu_kern_sum": "gpukernsum",
    "cuda_api_sum": "cudaapisum",
}


def install(folder: Path, recording: Path, **behaviour) -> Path:
    """Put a fake nsys into `folder`; `recording` holds the files that it will say it made.

    version         of nsys
    metrics_flag    the option for GPU metrics that it knows
    refuses         None; "permission" or "unsupported": at once; "late": only when it records
    report          False: it writes no recording, and ends with 0 all the same
    tables          False: a recording without kernels, of which nsys makes no tables
    old_reports     True: its reports have the names of before 2023
    export          False: exporting fails
    exit            its exit code after recording
    """
    folder.mkdir(parents=True, exist_ok=True)
    nsys = folder / "nsys"
    nsys.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
    nsys.chmod(0o755)
    defaults = {
        "version": "2025.3.1.90-253135822126v0", "metrics_flag": "--gpu-metrics-devices",
        "refuses": None, "report": True, "tables": True, "old_reports": False, "export": True,
        "exit": 0,
    }  # fmt: skip
    settings = defaults | behaviour | {"recording": str(recording)}
    (folder / "nsys.json").write_text(json.dumps(settings))
    return nsys


def option(arguments: list[str], name: str) -> str | None:
    """--name=value or --name value."""
    for i, argument in enumerate(arguments):
        if argument == name:
            return arguments[i + 1]
        if argument.startswith(f"{name}="):
            return argument.split("=", 1)[1]
    return None


def profile(arguments: list[str], is_: dict, log: Path) -> int:
    flag = is_["metrics_flag"]
    if arguments == ["--help"]:
        print(f"usage: nsys profile [<args>] [application]\n\t{flag}=\n\t   all, none, <index>")
        return 0
    asked = [a for a in arguments if a.startswith("--gpu-metrics-device")]
    if asked and not asked[0].startswith(f"{flag}="):
        print(f"unrecognized option '{asked[0]}'", file=sys.stderr)
        return 1
    says = {"permission": PERMISSION, "unsupported": UNSUPPORTED}.get(is_["refuses"])
    if asked and asked[0].endswith("=help"):
        print(says or f"Possible {flag} values are:\n\t0: NVIDIA H200\n\tall: Select all\n\tnone:")
        return 1 if says else 0
    if asked and (says or is_["refuses"] == "late"):
        print(f"Illegal {flag} argument: all.\n{says or PERMISSION}", file=sys.stderr)
        return 1

    application = next(i for i, a in enumerate(arguments) if not a.startswith("--"))
    with log.open("a") as out:
        out.write(json.dumps(arguments) + "\n")
    print("Capture range started in the application.")
    code = subprocess.run(arguments[application:], check=False).returncode
    if is_["report"] and code == 0:
        Path(option(arguments, "--output") + ".nsys-rep").write_bytes(b"a recording")
        print("Generated:\n\t" + option(arguments, "--output") + ".nsys-rep")
    else:
        print("No reports were generated")
    return code or is_["exit"]


def stats(arguments: list[str], is_: dict) -> int:
    names = list(REPORTS.values()) if is_["old_reports"] else list(REPORTS)
    if arguments == ["--help-reports"]:
        print("The following built-in reports are available:\n\n  " + "\n  ".join(names))
        return 0
    wanted = [arguments[i + 1] for i, a in enumerate(arguments) if a == "--report"]
    for name in wanted:
        if name not in names:
            print(f"ERROR: Report '{name}' could not be found.", file=sys.stderr)
            return 1
        today = next(new for new, old in REPORTS.items() if name in (new, old))
        if not is_["tables"]:
            print(f"SKIPPED: {arguments[-1]} does not contain CUDA kernel data.")
            continue
        source = Path(is_["recording"]) / f"x_{today}.csv"
        shutil.copy(source, f"{option(arguments, '--output')}_{name}.csv")
    return 0


def export(arguments: list[str], is_: dict) -> int:
    if not is_["export"]:
        print("Importer error: file is corrupt", file=sys.stderr)
        return 1
    shutil.copy(Path(is_["recording"]) / "x.sqlite", option(arguments, "--output"))
    return 0


def main() -> int:
    here = Path(__file__).parent
    is_ = json.loads((here / "nsys.json").read_text())
    command, *arguments = sys.argv[1:]
    if command == "--version":
        print(f"NVIDIA Nsight Systems version {is_['version']}")
        return 0
    # A program without Python's own prefix in the way of the application's environment.
    assert re.fullmatch(r"profile|stats|export", command), command
    if command == "profile":
        return profile(arguments, is_, here / "profiled.jsonl")
    return (stats if command == "stats" else export)(arguments, is_)


if __name__ == "__main__":
    sys.exit(main())
