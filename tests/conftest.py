"""What all tests share: one thread per library, and a switch that makes a missing dependency a failure."""

import os
import signal

# A shell starts its background jobs with Ctrl-C ignored, and they hand that on; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before NumPy is imported. Small matrices gain nothing from threads, and the same threads make the same bits.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

# What an ordinary machine does not set, and processes that tests start would inherit.
for _name in "UNBUFFERED DONTWRITEBYTECODE OPTIMIZE IOENCODING UTF8 COERCECLOCALE WARNINGS".split():
    os.environ.pop(f"PYTHON{_name}", None)

# Before JAX is: most of what its tests take is compiling, which gives the same answers with less effort.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("minibert", deadline=None)  # a busy machine is no failure
settings.load_profile("minibert")

_MISSING = ("could not import", "not installed", "not built", "no C core")
_DATA = "MINIBERT_DATA"  # in the reason of every test that is skipped for want of real data


# Of fine-tuning; to be read only. Files that have others of these names mean their own.


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a small pre-trained model, so to say."""
    from small_tasks import write_model

    return write_model(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="session")
def sst2(tmp_path_factory):
    """A small SST-2."""
    from small_tasks import write_sst2

    return write_sst2(tmp_path_factory.mktemp("data") / "SST-2")


@pytest.fixture(scope="session")
def rte(tmp_path_factory):
    """A small RTE."""
    from small_tasks import write_rte

    return write_rte(tmp_path_factory.mktemp("data") / "RTE")


@pytest.fixture(scope="session")
def run(model, sst2, tmp_path_factory):
    """A run folder, finished, that has learnt its task."""
    from small_tasks import small_options

    from minibert.finetuning.run import finetune

    out = tmp_path_factory.mktemp("runs") / "sst2"
    finetune(small_options(model, sst2), out, show=False)
    return out


def pytest_addoption(parser):
    parser.addoption(
        "--forbid-missing",
        action="store_true",
        help="fail when a test was skipped because a dependency is not installed (continuous integration)",
    )


def pytest_collection_modifyitems(items):
    """Mark the notebooks as slow."""
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker("slow")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    _refuse_missing(item.config, outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    outcome = yield
    _refuse_missing(collector.config, outcome.get_result())


def _refuse_missing(config, report):
    """Turn a skip for want of a library into a failure when `--forbid-missing` asks for it."""
    if report.skipped and config.getoption("--forbid-missing") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if any(sign in reason for sign in _MISSING):
            report.outcome, report.longrepr = "failed", f"--forbid-missing: {reason}"


def pytest_terminal_summary(terminalreporter):
    """Say how much a run did not test for want of data, which is no failure even with `--forbid-missing`."""
    skipped = sum(_DATA in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.write_line(
            f"Skipped for want of data: {skipped}. Name the folder of the real data in {_DATA}."
        )
