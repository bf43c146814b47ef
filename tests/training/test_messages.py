"""Messages of the package go through `logging`: level and place are the caller's, and none is shown twice."""

import logging
import subprocess
import sys

import pytest
from small_tasks import small_options

from minibert.finetuning.run import finetune
from minibert.training.runlog import DefaultHandler, info_if, logger


class Collector(logging.Handler):
    """Keeps the messages that it gets, with their levels."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append((record.name, record.levelname, record.getMessage()))


@pytest.fixture
def collector():
    """A handler, which is removed from all loggers after the test; the level is put back."""
    handler, level = Collector(), logger.level
    yield handler
    logger.setLevel(level)
    for one in (logger, logging.getLogger()):
        one.removeHandler(handler)


def test_messages_are_shown_where_logging_is_not_configured(capsys):
    logger.info("Step 1 of 100%.")
    assert capsys.readouterr().err == "Step 1 of 100%.\n"


@pytest.mark.parametrize("name", ["", "minibert"])
def test_handlers_of_a_program_get_messages_in_place_of_the_screen(collector, capsys, name):
    logging.getLogger(name).addHandler(collector)
    info_if(True)("Begun.")
    logger.warning("Damaged.")
    assert collector.messages == [("minibert", "INFO", "Begun."), ("minibert", "WARNING", "Damaged.")]
    assert capsys.readouterr().err == ""


def test_handlers_of_the_root_do_not_count_without_propagation(collector, capsys, monkeypatch):
    logging.getLogger().addHandler(collector)
    monkeypatch.setattr(logger, "propagate", False)
    logger.info("Begun.")
    assert collector.messages == []
    assert capsys.readouterr().err == "Begun.\n"


def test_quiet_messages_have_the_level_debug(collector, capsys):
    info_if(False)("Begun.")
    assert capsys.readouterr().err == ""
    logger.setLevel(logging.DEBUG)
    logger.addHandler(collector)
    info_if(False)("Begun.")
    assert collector.messages == [("minibert", "DEBUG", "Begun.")]


def test_a_level_silences_the_screen(collector, capsys):
    logger.setLevel(logging.WARNING)
    logger.info("Begun.")
    logger.warning("Damaged.")
    assert capsys.readouterr().err == "Damaged.\n"


def test_a_level_chosen_before_the_import_stays():
    code = """if True:
        import logging
        logging.getLogger("minibert").setLevel(logging.ERROR)
        from minibert.training.runlog import logger
        logger.warning("Damaged.")
        print(logger.level == logging.ERROR)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_there_is_one_handler_of_the_package():
    assert [type(handler) for handler in logger.handlers] == [DefaultHandler]
    assert logging.getLogger("minibert") is logger


def test_a_run_logs_for_the_handler_of_a_program(model, sst2, tmp_path, collector, capsys):
    logging.getLogger().addHandler(collector)
    finetune(small_options(model, sst2, max_steps=1), tmp_path / "run")
    texts = [text for _, level, text in collector.messages if level == "INFO"]
    assert texts[0].startswith("Engine ")
    assert [text[:16] for text in texts[2:]] == ["step 1/1  loss 0", "Epoch 0.1: accur"]
    assert capsys.readouterr().err == ""
