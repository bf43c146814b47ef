"""What processes of one training agree upon, with a table in memory; real ones are in test_processes.py."""

import json
import socket
from types import SimpleNamespace

import pytest

from minibert.base.errors import InputError, RunError

jax = pytest.importorskip("jax")

from minibert.engines.jax import cluster  # noqa: E402


class Table(dict):
    """What the first process keeps for all; `others` write as soon as the own process has."""

    def __init__(self, others=()):
        super().__init__()
        self.others = others

    def key_value_set(self, key, text, allow_overwrite=False):
        self[key] = text
        for number, said in enumerate(self.others, 1):
            self[f"{key.rpartition('/')[0]}/{number}"] = json.dumps(said)

    def key_value_dir_get(self, place):
        return [(key, text) for key, text in self.items() if key.startswith(place)]


class Gone:
    """The table of a process that is no more."""

    def key_value_set(self, *_, **__):
        raise RuntimeError("connection refused")


@pytest.fixture
def among(monkeypatch):
    """Be process 0 of two or more with this table."""

    def be(table, count=2):
        state = SimpleNamespace(client=table, process_id=0, num_processes=count)
        monkeypatch.setattr(cluster.distributed, "global_state", state)

    return be


def test_processes_that_say_the_same_go_on(among):
    said = {"jax": jax.__version__, "seed": 1}
    among(Table([said, said]), count=3)
    cluster.barrier("options", {"seed": 1})
    cluster.barrier("options", {"seed": 1})  # another barrier of the same name


def test_what_processes_say_differently_is_named_with_both_values(among):
    among(Table([{"jax": jax.__version__, "seed": 2, "steps": 9}]))
    with pytest.raises(InputError) as caught:
        cluster.barrier("options", {"seed": 1, "steps": 9})
    assert str(caught.value) == "Process 0 has seed=1, and process 1 has seed=2; give all of them the same."


def test_a_first_process_that_has_gone_is_a_sentence_with_advice(among):
    among(Gone())
    with pytest.raises(RunError, match=r"Process 0 of 2 can not be reached \(connection .* to resume it"):
        cluster.barrier("options")


def test_an_address_where_somebody_listens_is_refused():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"localhost:{port}.* can't listen there"):
            cluster._require_free(f"localhost:{port}")
    for address in ("localhost", "localhost:no", "localhost:99999999"):
        with pytest.raises(InputError, match="choose another port"):
            cluster._require_free(address)


@pytest.fixture
def last_words(monkeypatch):
    """What this process says before it ends, which it does not."""
    said = []

    def give_up(one, what, advice=""):
        said.append(cluster._sentence(one, what) + advice)
        raise SystemExit

    monkeypatch.setattr(cluster, "_give_up", give_up)
    return said


def test_who_has_left_ends_the_others_with_the_reason(among, last_words):
    table = Table()
    among(table)
    table["minibert/left/1"] = "the disk is full."
    with pytest.raises(SystemExit):
        cluster._watch()
    assert last_words == ["Process 1 of 2 has stopped (the disk is full), so this one, 0, stops as well."]
    assert table["minibert/beat/0"] == "0"


def test_who_is_silent_for_too_long_ends_the_others(among, last_words, monkeypatch):
    monkeypatch.setattr(cluster, "SILENCE", 0.01)
    monkeypatch.setattr(cluster, "BEAT", 0.02)
    among(Table())
    with pytest.raises(SystemExit):
        cluster._watch()
    assert "Process 1 of 2 has not been heard of for 0.01 seconds" in last_words[0]


def test_a_table_that_is_gone_ends_this_process_unless_it_has_ended_watching(among, last_words, monkeypatch):
    among(Gone())
    with pytest.raises(SystemExit):
        cluster._watch()
    assert "Process 0 of 2 can't be reached" in last_words[0]
    monkeypatch.setattr(cluster, "_over", SimpleNamespace(is_set=lambda: True))
    assert cluster._watch() is None
