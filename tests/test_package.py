"""The package as a newcomer meets it: quick to import, whole when installed, with a compiler and without."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
from paths import ROOT

import minibert
from minibert.cli import info

LICENCES = ("LICENSE", "NOTICE", "LICENSES")
SHIPPED = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    *LICENCES,
    "minibert",
    "csrc",
    "notebooks",
)
STAND_IN = "minibert/pretrained/stand-in/model.safetensors"
COMPILER = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
CPP_COMPILER = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++") or shutil.which("clang++")
ENGINE = """
import warnings
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "un", "##aff", "##able"])
    tokenizer.encode("a"), Tokenizer(tokenizer.vocab)
ids = tokenizer.encode("Unaffable", add_special_tokens=False)
print(tokenizer.core, ids, len(caught), *[warning.message for warning in caught])
"""


def run_python(*arguments, **options):
    """The output of a Python of its own that sees this source tree."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | options.pop("env", {})
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_no_library_and_no_other_module():
    script = """
import sys
import minibert
libraries = {"numpy", "numba", "jax", "jinja2", "matplotlib"}
print(*sorted(name for name in sys.modules if name in libraries or name.startswith("minibert")))
"""
    assert run_python("-c", script).split() == ["minibert"]


def test_every_public_name_resolves_to_the_object_of_its_module():
    for name in minibert.__all__:
        assert getattr(minibert, name) is not None
        assert name in dir(minibert)
    from minibert.core.config import BertConfig

    assert minibert.BertConfig is BertConfig


def test_unknown_public_name_is_an_attribute_error_that_lists_what_there_is():
    with pytest.raises(AttributeError, match="'Bart'; it offers Batch, Bert"):
        minibert.Bart  # noqa: B018


def test_info_lists_all_libraries_that_pip_installs_with_the_package():
    required = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert {re.match(r"[\w.]+", requirement)[0] for requirement in required} == set(info.REQUIRED)


def test_what_is_to_be_installed_is_where_pip_finds_it():
    told = [ROOT / "README.md", *(ROOT / "minibert").rglob("*.py")]
    text = "\n".join(path.read_text("utf-8") for path in told)
    assert not re.search(r"pip install[^\n]*minibert-scratch", text)  # no index has it: a checkout has
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = re.findall(r"pip install\s+'\.\[(\w+)\]'", text)
    assert {"jax", "plots"} <= set(named) <= set(extras)


@pytest.fixture(scope="module")
def no_compiler(tmp_path_factory):
    """An environment in which no compiler, nor anything else but Python itself, is on PATH."""
    folder = tmp_path_factory.mktemp("empty-path")
    return {"PATH": str(folder), "CC": "no-compiler-here", "CXX": "no-compiler-here"}


def source_tree(folder):
    """A copy of what an installation is made from, with nothing that was built."""
    folder.mkdir(exist_ok=True)
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            built = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
            shutil.copytree(ROOT / name, folder / name, ignore=built)
        else:
            shutil.copy(ROOT / name, folder / name)
    (folder / STAND_IN).parent.mkdir(parents=True)
    (folder / STAND_IN).touch()
    return folder


def build_wheel(source, target, **options):
    options = {"env": {}} | options
    flags = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    run_python("-m", "pip", "wheel", *flags, "--wheel-dir", target, source, **options)
    [path] = target.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, no_compiler):
    """The wheel of this source tree, built without a compiler."""
    source, target = source_tree(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("wheel")
    return build_wheel(source, target, env=no_compiler)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory, no_compiler):
    """The source distribution; nothing is compiled for it."""
    source, target = source_tree(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("sdist")
    (source / "tests").mkdir()
    (source / "tests" / "test_one.py").touch()
    script = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run_python("-c", script, target, env=no_compiler, cwd=source)
    [path] = target.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def quick_compilers(tmp_path_factory):
    """An environment in which compilers leave out what takes them most of a minute: to optimise."""
    folder, environment = tmp_path_factory.mktemp("compilers"), {"MINIBERT_BUILD_ISAS": "portable,native"}
    for name, compiler in (("CC", COMPILER), ("CXX", CPP_COMPILER)):
        if compiler:
            environment[name] = str(folder / name)
            (folder / name).write_text(f'#!/bin/sh\nexec "{compiler}" "$@" -O0\n')
            (folder / name).chmod(0o755)
    return environment


@pytest.fixture(scope="module")
def compiled_wheel(tmp_path_factory, sdist, quick_compilers):
    """The wheel of the source distribution, built with a compiler."""
    if COMPILER is None:
        pytest.skip("a C compiler is not installed")
    folder, target = tmp_path_factory.mktemp("unpacked"), tmp_path_factory.mktemp("compiled-wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    [source] = folder.iterdir()
    return build_wheel(source, target, env=quick_compilers)


# It notes what it is told and compiles nothing. Tiles are beyond it, and programs run that are for AVX2.
FAKE_COMPILER = """#!/bin/sh
echo "$*" >> "{log}"
for word; do [ "$word" != -mamx-tile ] || exit 1; done
while [ "$1" != -o ]; do [ $# -gt 0 ] || exit 0; shift; done
printf '#!/bin/sh\ncase $0 in *avx2) exit 0; esac; exit 1' > "$2"
chmod +x "$2"
"""


def test_kernels_that_are_there_say_what_they_are_for():
    """By it an installation with other extras knows that it need not compile them again."""
    kernels = pytest.importorskip("minibert.engines.cpp._kernels", reason="the kernels in C++ are not built")
    with open(kernels.__file__, "rb") as file:
        built = file.read()
    assert kernels.available() and all(f"{name}\0".encode() in built for name in kernels.available())


@pytest.mark.thorough
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="there is one instruction set")
@pytest.mark.parametrize(
    ("asked", "sets", "refused"),
    [
        ("", ["avx512_bf16", "avx512", "avx2", "portable"], True),
        ("portable,native", ["avx2", "portable"], False),
        ("amx, avx512", ["avx512", "portable"], True),
    ],
)
def test_an_instruction_set_that_is_refused_costs_itself_alone(asked, sets, refused, tmp_path):
    pytest.importorskip("pybind11")
    source, compiler, log = source_tree(tmp_path / "source"), tmp_path / "compiler", tmp_path / "log"
    compiler.write_text(FAKE_COMPILER.format(log=log))
    compiler.chmod(0o755)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path / "built")]
    environment = os.environ | {"CC": str(compiler), "CXX": str(compiler), "MINIBERT_BUILD_ISAS": asked}
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("this compiler can't do amx: no kernels for that" in done.stderr) == refused
    assert len(list((tmp_path / "built").rglob("_kernels*"))) == 1
    told = log.read_text()
    assert f"-DMB_SETS={' '.join(f'MB_SET({name})' for name in sets)} " in told
    assert {*re.findall(r"-DMB_ISA=(\w+) \S*.*gemm\.cpp", told)} == set(sets)


@pytest.mark.thorough
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="there is one instruction set")
def test_mingw_is_told_that_the_stack_of_windows_is_not_aligned(tmp_path):
    pytest.importorskip("pybind11")
    pytest.importorskip("cffi")
    source, compiler, log = source_tree(tmp_path / "source"), tmp_path / "compiler", tmp_path / "log"
    compiler.write_text(FAKE_COMPILER.format(log=log))
    compiler.chmod(0o755)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--compiler", "mingw32"]
    command += ["--build-lib", str(tmp_path / "built")]
    environment = os.environ | {"CC": str(compiler), "CXX": str(compiler), "MINIBERT_BUILD_ISAS": "avx2"}
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    [avx2] = [line for line in lines if "-DMB_ISA=avx2" in line and "gemm.cpp" in line]
    [portable] = [line for line in lines if "-DMB_ISA=portable" in line and "gemm.cpp" in line]
    assert "-Wa,-muse-unaligned-vector-move" in avx2 and "-Wa," not in portable
    [linked] = [line for line in lines if "gemm.o" in line and "peak.o" in line]
    assert linked.endswith(" -pthread -static")  # Python finds no libraries of the compiler's
    [core] = [line for line in lines if "encode.c" in line]
    assert "-ffp-contract=off" in core and "/O2" not in core


@pytest.mark.thorough
def test_an_unknown_instruction_set_to_build_for_is_refused(tmp_path):
    pytest.importorskip("pybind11")
    environment = os.environ | {"MINIBERT_BUILD_ISAS": "portable,mmx"}
    command = [sys.executable, "setup.py", "--version"]
    done = subprocess.run(command, cwd=source_tree(tmp_path / "s"), env=environment, capture_output=True)
    assert done.returncode == 1
    assert b"minibert: MINIBERT_BUILD_ISAS names 'mmx'; choose from portable" in done.stderr


@pytest.mark.thorough
def test_wheel_holds_every_source_the_corpus_the_models_and_the_unicode_table(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "minibert").rglob("*.py")}
    assert sources <= inside
    assert any(name.startswith("minibert/corpora/") for name in inside)
    models = (ROOT / "minibert" / "pretrained").glob("*/*")
    assert {STAND_IN, *(str(path.relative_to(ROOT)) for path in models)} <= inside
    assert {"minibert/tokenizer/unicode-15.0.0.txt", "minibert/reports/templates/report.html.j2"} <= inside
    assert {"minibert/explorer/static/bert.js", "minibert/explorer/static/explorer.html.j2"} <= inside
    assert {"minibert/course/static/animation.js", "minibert/course/static/animation.html.j2"} <= inside
    lessons = {path.name for path in (ROOT / "notebooks").glob("[0-9]*.*")}
    shared = {name.partition("data/share/minibert/notebooks/")[2] for name in inside} - {""}
    assert "05_gradients_you_can_trust.ipynb" in lessons and shared == lessons  # for `minibert course`


@pytest.mark.thorough
def test_wheel_has_notebooks_without_outputs_and_stays_small(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if name.endswith(".ipynb")]
        notebooks = [json.loads(opened.read(name)) for name in names]
    code = [cell for notebook in notebooks for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) > 100 and not any(cell["outputs"] for cell in code)
    assert wheel.stat().st_size < 18_000_000


@pytest.mark.thorough
def test_wheel_carries_the_licences_and_no_tests(wheel):
    inside = zipfile.ZipFile(wheel).namelist()
    licences = {name.partition("dist-info/licenses/")[2] for name in inside} - {""}
    assert licences == {"LICENSE", "NOTICE", "LICENSES/Unicode-3.0.txt"}
    outside = ("tests", "notebooks", "benchmarks", "csrc", "build")
    assert not [name for name in inside if name.startswith(outside)]


@pytest.mark.thorough
def test_wheel_in_pure_python_is_for_every_platform(tmp_path, no_compiler):
    source = source_tree(tmp_path / "source")
    path = build_wheel(source, tmp_path / "wheel", env={**no_compiler, "MINIBERT_PURE": "1"})
    assert path.name.endswith("-py3-none-any.whl")


def test_what_is_cited_and_what_is_logged_is_this_version():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {minibert.__version__}\n" in citation
    number = minibert.__version__.partition(".dev")[0]
    assert re.search(rf"^## {re.escape(number)}\b", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)


@pytest.mark.thorough
def test_installed_without_a_compiler_the_command_runs_and_says_what_is_missing(wheel, no_compiler, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    assert not [*tmp_path.rglob("_wordpiece*"), *tmp_path.rglob("_kernels*")]
    installed = {**no_compiler, "PYTHONPATH": str(tmp_path)}
    output = run_python("-m", "minibert", "info", env=installed, cwd=tmp_path)
    assert output.split()[:2] == ["minibert", minibert.__version__]
    assert "core in Python" in output and "install a C compiler and Python's headers" in output
    assert "cpp: not available" in output and "install a C++ compiler (GCC 11 or later, or Clang)" in output


@pytest.mark.thorough
def test_installed_without_a_compiler_the_tokenizer_works_and_warns_once(wheel, no_compiler, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    output = run_python("-c", ENGINE, env={**no_compiler, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    assert output.startswith("python [5, 6, 7] 1 the C core of the tokenizer is not available")
    assert "install a C compiler and Python's headers" in output


@pytest.mark.thorough
def test_source_distribution_holds_what_the_extension_is_made_of(sdist):
    inside = {name.partition("/")[2] for name in tarfile.open(sdist).getnames()}
    files = (ROOT / "csrc").rglob("*")
    sources = {
        str(file.relative_to(ROOT)) for file in files if file.suffix in (".c", ".cpp", ".h", ".def", ".mk")
    }
    assert len(sources) > 30
    assert {"csrc/wordpiece/build.py", "csrc/wordpiece/unicode_tables.py", *sources} <= inside
    assert {"minibert/tokenizer/unicode-15.0.0.txt", STAND_IN, "setup.py"} <= inside
    assert {"NOTICE", "LICENSES/Unicode-3.0.txt"} <= inside
    assert not [name for name in inside if name.startswith(("tests", "build"))]


@pytest.mark.slow
def test_installed_with_a_compiler_the_tokenizer_is_the_c_core(compiled_wheel, tmp_path):
    zipfile.ZipFile(compiled_wheel).extractall(tmp_path)
    assert len(list(tmp_path.rglob("minibert/tokenizer/_wordpiece*"))) == 1
    installed = {"PYTHONPATH": str(tmp_path)}
    assert run_python("-c", ENGINE, env=installed, cwd=tmp_path).strip() == "c [5, 6, 7] 0"
    output = run_python("-m", "minibert", "info", env=installed, cwd=tmp_path)
    assert "core in C" in output and "core in Python" not in output


@pytest.mark.slow
def test_installed_with_a_compiler_auto_is_the_engine_in_cpp(compiled_wheel, tmp_path):
    pytest.importorskip("pybind11")
    zipfile.ZipFile(compiled_wheel).extractall(tmp_path)
    assert len(list(tmp_path.rglob("minibert/engines/cpp/_kernels*"))) == 1
    output = run_python("-m", "minibert", "info", env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    assert "auto: cpp: kernels in C++" in output


@pytest.mark.exhaustive
@pytest.mark.slow
def test_clang_takes_the_kernels_as_gcc_does():
    if (clang := shutil.which("clang++")) is None:
        pytest.skip("there is no clang++ here")
    sources = sorted((ROOT / "csrc" / "kernels").glob("*.cpp"))
    sources = [source for source in sources if source.name != "bindings.cpp"]  # which needs Python's headers
    flags = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only")
    done = subprocess.run([clang, *flags, *sources], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_coverage_passes_over_what_numba_compiles_and_nothing_else():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["coverage"]["report"]
    sources = (ROOT / "minibert" / "engines" / "numba").glob("*.py")
    lines = [line for file in sources for line in file.read_text("utf-8").splitlines() if "@" in line]
    pattern = re.compile("|".join(settings["exclude_also"]))
    passed_over = {line.strip() for line in lines if pattern.match(line)}
    assert passed_over == {"@inline", "@kernel", "@njit", "@sums"}
    for one in settings["exclude_also"]:
        assert any(re.match(one, line) for line in lines), one
