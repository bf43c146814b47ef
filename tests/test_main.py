"""`python -m minibert` in this process; the tests of commands start others."""

import sys

import pytest

from minibert import __main__, cli


@pytest.mark.thorough
def test_the_command_of_this_process_is_run(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["minibert", "info", "--json"])
    assert __main__.main() == 0
    assert '"minibert"' in capsys.readouterr().out


def test_ctrl_c_while_modules_are_loaded_ends_without_a_traceback(monkeypatch):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", stop)
    assert __main__.main() == __main__.INTERRUPTED == cli.INTERRUPTED


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_stream_that_was_closed_is_an_empty_one(monkeypatch, name):
    monkeypatch.setattr(sys, name, None)
    monkeypatch.setattr(cli, "main", lambda: 0)
    assert __main__.main() == 0
    stream = getattr(sys, name)
    assert stream.read() == "" if name == "stdin" else stream.write("nobody reads this")
    stream.close()
