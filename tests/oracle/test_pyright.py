"""What pyright, the checker of VS Code, reports of the programs for users."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs_programs import write_programs
from paths import ROOT

UNTYPED = ("sklearn", "transformers")  # whose types are incomplete


def write_stubs(folder: Path) -> list[str]:
    """Make what comes out of libraries without types Any, as docs/python.md has it; return their modules."""
    [stub] = re.findall(r"```pyi\n(.*?)```", (ROOT / "docs" / "python.md").read_text("utf-8"), re.DOTALL)
    sources = [path.read_text("utf-8") for path in sorted(folder.glob("*.py"))]
    imported = {name for source in sources for name in re.findall(r"^from ([\w.]+) import", source, re.M)}
    modules = sorted(name for name in imported if name.partition(".")[0] in UNTYPED)
    for name in modules:
        path = folder.joinpath("typings", *name.split("."), "__init__.pyi")
        path.parent.mkdir(parents=True)
        path.write_text(stub, "utf-8")
    return modules


@pytest.mark.slow
def test_programs_of_the_docs_have_no_type_errors_in_strict_mode(tmp_path):
    pytest.importorskip("pyright")
    names = write_programs(tmp_path)
    (tmp_path / "wrong.py").write_text("import minibert\nminibert.TextEncoder('model', pool=3)\n")
    assert {name.partition(".")[0] for name in write_stubs(tmp_path)} == set(UNTYPED)
    checked_files = [*names, "wrong.py"]
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": checked_files}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    report = json.loads(checked.stdout)
    messages = [(Path(one["file"]).name, one["message"]) for one in report["generalDiagnostics"]]
    assert report["summary"]["filesAnalyzed"] == len(checked_files) == 22
    assert {name for name, _ in messages} == {"wrong.py"}, messages
