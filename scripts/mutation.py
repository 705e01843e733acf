"""`scripts/mutate`: runs mutmut on modules in a copy of the tree, and prints how many changes the tests notice."""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
MUTMUT = ROOT / ".venv" / "bin" / "mutmut"
LEFT_OUT = ("e2e", "faults")
"""Folders of tests that start whole programs: a change would take a second or more."""

SETTINGS = """
[tool.mutmut]
source_paths = ["massmem"]
only_mutate = ["{module}"]
also_copy = ["tests", "configs", "scripts", "docs", "README.md"]
timeout_multiplier = 5
pytest_add_cli_args = ["-p", "no:cacheprovider", "-m", "not slow and not full"]
pytest_add_cli_args_test_selection = {tests}
"""


def main(arguments: list[str]) -> int:
    """Try the modules; return 1 when one cannot be tried, or nothing is to be tried."""
    modules, tests = arguments, []
    if "--" in arguments:
        split = arguments.index("--")
        modules, tests = arguments[:split], arguments[split + 1 :]
    if not modules or not all((ROOT / module).is_file() for module in modules):
        print("name modules as files: scripts/mutate massmem/server/limits.py", file=sys.stderr)
        return 1
    return max(try_module(module, tests or find_tests(module)) for module in modules)


def find_tests(module: str) -> list[str]:
    """Return the tests that import the module, and those in the folder that mirrors it."""
    name = module.removesuffix(".py").replace("/", ".")
    parent, _, last = name.rpartition(".")
    imports = re.compile(rf"from {re.escape(name)} import|from {re.escape(parent)} import .*\b{last}\b|import {name}\b")
    folder = ROOT / "tests"
    files = [path for path in folder.rglob("test_*.py") if path.relative_to(folder).parts[0] not in LEFT_OUT]
    mirror = {f"test_{last}.py", f"test_{parent.rpartition('.')[2]}_{last}.py"}
    importing = [path for path in files if path.name in mirror or imports.search(path.read_text())]
    return sorted(str(path.relative_to(ROOT)) for path in importing)


def try_module(module: str, tests: list[str]) -> int:
    """Run mutmut on one module and print what came of it; return an exit code.

    A test that takes too long is no kill: on a busy machine it may only have been slow. Look at the change.
    """
    if not tests:
        print(f"{module}: no test imports it; name tests after --", file=sys.stderr)
        return 1
    copy = Path(tempfile.mkdtemp(prefix="massmem-mutants-"))
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "x"], cwd=copy, input=archive.stdout, check=True)
    with (copy / "pyproject.toml").open("a") as settings:
        settings.write(SETTINGS.format(module=module, tests=tests))
    with (copy / "log").open("w") as log:
        ended = subprocess.run([MUTMUT, "run"], cwd=copy, stdout=log, stderr=log, check=False)
    listed = subprocess.run([MUTMUT, "results", "--all", "true"], cwd=copy, capture_output=True, text=True, check=False)
    results = dict(line.strip().rsplit(": ", 1) for line in listed.stdout.splitlines() if "__mutmut_" in line)
    counts = Counter(results.values())
    tried = sum(counts.values()) - counts["no tests"] - counts["not checked"]
    others = {name: result for name, result in results.items() if result not in ("killed", "no tests", "not checked")}
    if not tried:
        print(f"{module}: mutmut ended with {ended.returncode}, see {copy / 'log'}", file=sys.stderr)
        return 1
    killed = tried - len(others)
    print(f"{module}: {killed} of {tried} killed ({killed / tried:.0%}), {counts['no tests']} without a test; {copy}")
    for name, result in others.items():
        print(f"  {name}: {result}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
