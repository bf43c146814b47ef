"""What all tests share: one thread per library, and a switch that makes a missing dependency a failure."""

import logging
import os
import signal
import time
from collections import Counter

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
settings.register_profile("quick", settings.get_profile("minibert"), max_examples=10)  # of `make test`
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
    parser.addoption(
        "--dearest",
        type=int,
        default=0,
        metavar="N",
        help="print the processor seconds of the run, of its quick tests, and of the N tests that took most",
    )


def pytest_collection_modifyitems(items):
    """Mark as slow the notebooks and what a browser is started for, as thorough what others represent."""
    for item in items:
        if item.path.suffix == ".ipynb" or "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
        chosen = [_is_representative(item, mark.kwargs) for mark in item.iter_markers("representatives")]
        if chosen and not any(chosen):
            item.add_marker("thorough")


def _is_representative(item, wanted):
    """Tell whether each parameter that is named has the value that is wanted, or one of a list of them."""
    given = item.callspec.params
    unknown = wanted.keys() - given.keys()
    if unknown:
        raise pytest.UsageError(
            f"{item.nodeid} has no parameter {', '.join(sorted(unknown))} to represent others"
        )
    return all(
        given[name] in values if isinstance(values, list) else given[name] == values
        for name, values in wanted.items()
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Give the root logger the handlers and the level that it had before a test.

    A library may change them when it is imported, as accessible-pygments does; then minibert's messages would
    go to its handler, and later tests would miss them.
    """
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


_counted = 0.0  # of this process's processor seconds, those that a report has


def _processor_seconds():
    """Return the processor time of this process so far, and of its children that have ended."""
    return sum(os.times()[:4])


def pytest_runtest_logstart():
    global _counted
    _counted = _processor_seconds()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    global _counted
    outcome = yield
    report, now = outcome.get_result(), _processor_seconds()
    report.processor_seconds, _counted = now - _counted, now
    _refuse_missing(item.config, report)


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


def pytest_sessionfinish(session):
    """Hand the processor time of a process of xdist, imports and all, to the one that it works for."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["processor_seconds"] = _processor_seconds()


_workers = []  # their processor seconds


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    _workers.append(getattr(node, "workeroutput", {}).get("processor_seconds", 0.0))


def pytest_terminal_summary(terminalreporter):
    _write_dearest(terminalreporter, terminalreporter.config.getoption("--dearest"))
    _write_skipped(terminalreporter)


def _write_dearest(terminalreporter, count):
    """Say what processor time a run took, its quick tests, and the `count` dearest, fixtures included."""
    if not count:
        return
    taken, quick = Counter(), 0.0
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "processor_seconds"):
                taken[report.nodeid] += report.processor_seconds
                if not report.keywords.keys() & {"slow", "thorough"}:
                    quick += report.processor_seconds
    own = _processor_seconds() if not _workers else time.process_time()
    whole = own + sum(_workers)
    terminalreporter.section(f"{whole:.0f} processor seconds, {quick:.0f} of quick tests; the dearest tests")
    for name, seconds in taken.most_common(count):
        terminalreporter.write_line(f"{seconds:8.2f} s  {name}")


def _write_skipped(terminalreporter):
    """Say how much a run did not test for want of data, which is no failure even with `--forbid-missing`."""
    skipped = sum(_DATA in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.write_line(
            f"Skipped for want of data: {skipped}. Name the folder of the real data in {_DATA}."
        )
