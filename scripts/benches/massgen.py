"""How many of MassGen's configurations run here: whole, or with --allow-missing. DIR has them as *.yaml, at any depth.

Variables that they name are set to a made-up key or address, since their values are not what is measured.
"""

import re
from collections import Counter
from pathlib import Path

from massmem.config.home import ALLOW_MISSING_VARIABLE
from massmem.config.load import load_file
from massmem.config.massgen import SERVICES
from massmem.core.errors import ConfigError
from scripts.benches.process import BenchError
from scripts.benches.rows import Row, at_least, reported

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
_SHOWN = 12


def run(data: Path) -> list[Row]:
    files = sorted(path for suffix in ("yaml", "yml") for path in data.rglob(f"*.{suffix}"))
    if not files:
        raise BenchError(f"there is no *.yaml below {data}")
    names = {name for path in files for name in _VARIABLE.findall(path.read_text(errors="replace"))}
    names |= {variable for _, variable in SERVICES.values()}
    environ = {
        name: "http://localhost:8000" if re.search("URL|ENDPOINT", name) else "sk-0a1b2c3d4e5f" for name in names
    }
    counts, reasons = Counter[str](), Counter[str]()
    for path in files:
        if not (problems := _list_problems(path, environ)):
            counts["whole"] += 1
            continue
        reasons.update({re.sub(r"^.*?:\d+: |\.\d+(?=\.)", "", problem) for problem in problems})
        counts["allowed"] += not _list_problems(path, environ | {ALLOW_MISSING_VARIABLE: "1"})
    return [
        reported("files", len(files), ""),
        at_least("whole", counts["whole"], "", 85),
        at_least("whole, or with --allow-missing", counts["whole"] + counts["allowed"], "", 215),
        *(reported(reason.split("; instead: ")[0], number, "files") for reason, number in reasons.most_common(_SHOWN)),
    ]


def _list_problems(path: Path, environ: dict[str, str]) -> list[str]:
    try:
        load_file(path, environ)
    except ConfigError as e:
        return e.problems
    return []
