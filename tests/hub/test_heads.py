"""Fine-tuned models in Hugging Face's format: every head there and back, another head asked for, labels."""

import json

import google_folder
import numpy as np
import pytest
from agreement import stored_tensors
from safetensors.numpy import load_file, save_file

from minibert import hub
from minibert.base.errors import InputError
from minibert.core.config import BertConfig
from minibert.core.gradcheck.cases import SIZES
from minibert.core.gradcheck.losses import task_losses
from minibert.finetuning import foreign
from minibert.hub.loading import kind_named
from minibert.model.head_kinds import KINDS
from minibert.model.params import PRETRAINING, Head, initialise
from minibert.reports import card

CONFIG = BertConfig(7, 6, 2, 3, 5, max_position_embeddings=8)
LABELS = {
    "classify": ("no", "perhaps", "yes"),
    "multilabel": ("art", "science"),
    "tag": ("O", "B-PER", "I-PER", "Ö", "B-LOC"),
}
HEADS = {
    "classify": (Head("classify", 3), "BertForSequenceClassification", ("classifier.weight", (3, 6))),
    "multilabel": (Head("multilabel", 2), "BertForSequenceClassification", ("classifier.weight", (2, 6))),
    "regress": (Head("regress", 1), "BertForSequenceClassification", ("classifier.weight", (1, 6))),
    "span": (Head("span", 2), "BertForQuestionAnswering", ("qa_outputs.weight", (2, 6))),
    "tag": (Head("tag", 5), "BertForTokenClassification", ("classifier.weight", (5, 6))),
    "choice": (Head("choice", 1), "BertForMultipleChoice", ("classifier.weight", (1, 6))),
}


def fields_of(folder):
    return json.loads((folder / "config.json").read_text())


def change_fields(folder, **changes):
    """Alter a configuration; None takes a field out."""
    fields = {name: value for name, value in (fields_of(folder) | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(fields))


@pytest.fixture(params=HEADS)
def kind(request):
    return request.param


@pytest.fixture
def saved(kind, tmp_path):
    """The folder of a model with that head, and its parameters."""
    params = initialise(CONFIG, 5, head=HEADS[kind][0])
    params.flat += np.random.default_rng(1).normal(size=params.flat.shape).astype(np.float32)
    hub.save_hf(tmp_path / "saved", CONFIG, params, LABELS.get(kind, ()))
    return tmp_path / "saved", params


def test_every_head_comes_back_bit_for_bit(kind, saved):
    folder, params = saved
    config, loaded, report = hub.load(folder)
    assert (config, loaded.head, report) == (CONFIG, HEADS[kind][0], ((), (), ()))
    assert loaded.flat.tobytes() == params.flat.tobytes()
    assert hub.load_labels(folder) == ({"regress": ("LABEL_0",)} | LABELS).get(kind, ())


def test_the_configuration_names_the_architecture_and_tensors_are_its(kind, saved):
    folder, params = saved
    _, architecture, (name, shape) = HEADS[kind]
    assert fields_of(folder)["architectures"] == [architecture]
    tensors = load_file(folder / "model.safetensors")
    assert tensors[name].shape == shape
    np.testing.assert_array_equal(tensors[name], params["head.weight"].T)
    np.testing.assert_array_equal(tensors[name.replace("weight", "bias")], params["head.bias"])
    assert ("bert.pooler.dense.weight" in tensors) == (kind not in ("span", "tag"))
    assert not any(name.startswith("cls.") for name in tensors)


def test_labels_and_the_kind_of_problem_stand_in_the_configuration(kind, saved):
    fields = fields_of(saved[0])
    labels = {"regress": ("LABEL_0",)} | LABELS
    if kind in labels:
        assert list(fields["id2label"].items()) == [(str(n), label) for n, label in enumerate(labels[kind])]
        assert fields["label2id"] == {label: n for n, label in enumerate(labels[kind])}
    else:
        assert "id2label" not in fields
    problems = {"classify": "single_label", "multilabel": "multi_label", "regress": "regression"}
    problem = problems.get(kind)
    assert fields.get("problem_type") == (f"{problem}_classification" if "label" in str(problem) else problem)


def test_without_a_word_in_the_configuration_the_tensors_tell_the_head(kind, saved):
    folder, params = saved
    change_fields(folder, architectures=None, problem_type=None, id2label=None)
    found = hub.load(folder)[1].head
    alike = {"choice": Head("regress", 1), "multilabel": Head("classify", 2)}
    assert found == alike.get(kind, params.head)
    assert hub.load(folder, head=params.head)[1].flat.tobytes() == params.flat.tobytes()


@pytest.mark.parametrize("asked", [*(head for head, *_ in HEADS.values()), Head("classify", 2), PRETRAINING])
def test_under_another_head_the_encoder_is_kept_and_the_rest_is_fresh(asked, kind, saved):
    folder, params = saved
    _, loaded, report = hub.load(folder, head=asked, seed=11)
    expected, fresh = params.with_head(asked, seed=11)
    assert loaded.head == asked
    assert loaded.flat.tobytes() == expected.flat.tobytes()
    hub.save_hf(folder.parent / "other", CONFIG, loaded)
    names, old = (set(load_file(path / "model.safetensors")) for path in (folder.parent / "other", folder))
    if asked == params.head:
        assert report == ((), (), ())
    else:
        own = {name for name in old & names if not name.startswith(("classifier", "qa_outputs"))}
        assert set(report.missing) == names - own
        assert set(report.unused) == old - own
    assert bool(report.missing) == bool(fresh)


def test_a_head_of_lstms_comes_back_under_names_of_its_own(tmp_path):
    params = initialise(CONFIG, 2, head=Head("tag", 4, lstm=True))
    hub.save_hf(tmp_path / "hf", CONFIG, params)
    google_folder.write(tmp_path / "tf", CONFIG, params)
    for name in ("hf", "tf"):
        _, loaded, report = hub.load(tmp_path / name)
        assert (loaded.head, report) == (params.head, ((), (), ()))
        assert loaded.flat.tobytes() == params.flat.tobytes()
    _, _, report = hub.load(tmp_path / "hf", head=Head("tag", 4))
    assert "lstm.0.left_to_right.w_in" in report.unused
    assert report.missing == ("classifier.weight", "classifier.bias")


def test_a_lost_output_layer_has_as_many_rows_as_there_are_labels(tmp_path):
    params = initialise(CONFIG, 1, head=Head("tag", 5))
    hub.save_hf(tmp_path, CONFIG, params, LABELS["tag"], omit=("classifier.weight", "classifier.bias"))
    _, loaded, report = hub.load(tmp_path)
    assert loaded.head == Head("tag", 5)
    assert report.missing == ("classifier.weight", "classifier.bias")
    change_fields(tmp_path, id2label=None)
    assert hub.load(tmp_path)[1].head == Head("tag", 2)


def test_labels_of_another_number_than_the_rows_are_refused(tmp_path):
    hub.save_hf(tmp_path, CONFIG, initialise(CONFIG, 1, head=Head("classify", 3)))
    change_fields(tmp_path, id2label={"0": "a", "1": "b"})
    with pytest.raises(InputError, match=r"classifier\.weight has 3 rows, config\.json names 2 labels"):
        hub.load(tmp_path)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_kind_of_problem_tells_one_class_from_several(outputs, tmp_path):
    hub.save_hf(tmp_path, CONFIG, initialise(CONFIG, 1, head=Head("multilabel", outputs)))
    assert hub.load(tmp_path)[1].head == Head("multilabel", outputs)
    change_fields(tmp_path, problem_type=None)
    assert hub.load(tmp_path)[1].head == Head("classify" if outputs > 1 else "regress", outputs)


@pytest.mark.parametrize("problem", ["regression"])
def test_a_head_with_another_loss_is_refused_but_its_encoder_is_not(problem, tmp_path):
    params = initialise(CONFIG, 1, head=Head("classify", 3))
    hub.save_hf(tmp_path, CONFIG, params)
    change_fields(tmp_path, problem_type=problem)
    with pytest.raises(
        InputError, match=f"problem_type='{problem}' with several .* encoder can be used: fine-"
    ):
        hub.load(tmp_path)
    _, loaded, report = hub.load(tmp_path, head=Head("classify", 3))
    assert report.missing == ("classifier.weight", "classifier.bias") == report.unused[::-1]
    np.testing.assert_array_equal(loaded["pooler.weight"], params["pooler.weight"])


@pytest.mark.parametrize(
    ("labels", "head", "message"),
    [
        (("a", "b"), Head("classify", 3), "2 labels do not fit a head of kind 'classify' with 3 outputs"),
        (("a", "b"), Head("span", 2), "2 labels do not fit"),
        (("a", "b", "a"), Head("tag", 3), "gives two classes the same name"),
    ],
)
def test_labels_that_do_not_fit_the_head_are_refused_and_nothing_is_written(labels, head, message, tmp_path):
    with pytest.raises(InputError, match=message):
        hub.save_hf(tmp_path / "x", CONFIG, initialise(CONFIG, 1, head=head), labels)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("stored", [3, ["a"], {"a": "b"}, {"1": "b"}, {"0": 1}, {"0": None}])
def test_labels_that_are_not_numbered_are_refused(stored, tmp_path):
    hub.save_hf(tmp_path, CONFIG, initialise(CONFIG, 1, head=Head("tag", 1)))
    change_fields(tmp_path, id2label=stored)
    with pytest.raises(InputError, match=r"config\.json: id2label="):
        hub.load_labels(tmp_path)


def test_unknown_heads_are_refused(tmp_path):
    hub.save_hf(tmp_path, CONFIG, initialise(CONFIG, 1))
    with pytest.raises(InputError, match="head kind 'poem' does not exist"):
        hub.load(tmp_path, head=Head("poem", 2))


@pytest.mark.parametrize("architectures", [None, [], 3, ["BertModel"], ["SomethingElse"], [["x"]]])
def test_whatever_the_configuration_calls_it_pretraining_heads_are_found(architectures, tmp_path):
    params = initialise(CONFIG, 8)
    hub.save_hf(tmp_path, CONFIG, params)
    change_fields(tmp_path, architectures=architectures)
    assert hub.load(tmp_path)[1].flat.tobytes() == params.flat.tobytes()


@pytest.mark.parametrize(
    ("omit", "architecture"),
    [("cls.", "BertModel"), ("cls.seq", "BertForMaskedLM"), ("x", "BertForPreTraining")],
)
def test_what_is_left_out_decides_on_the_architecture(omit, architecture, tmp_path):
    params = initialise(CONFIG, 8)
    names = [name for name in hub.to_hf(params) if name.startswith(omit)]
    hub.save_hf(tmp_path, CONFIG, params, omit=names)
    assert fields_of(tmp_path)["architectures"] == [architecture]
    assert hub.load(tmp_path)[2].missing == tuple(names)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_shorter_numbers_are_rounded_to_nearest_and_come_back_the_same(dtype, tmp_path):
    params = initialise(CONFIG, 8)
    params.flat[:4] = 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11
    hub.save_hf(tmp_path / "once", CONFIG, params, dtype=dtype)
    _, loaded, _ = hub.load(tmp_path / "once")
    halfway = {"bfloat16": [1, 1 + 2.0**-6, 1, 1], "float16": [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1, 1 + 2.0**-9]}
    assert loaded.flat[:4].tolist() == halfway[dtype]
    assert fields_of(tmp_path / "once")["dtype"] == dtype
    hub.save_hf(tmp_path / "again", CONFIG, loaded, dtype=dtype)
    once, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("once", "again"))
    assert once == again
    assert len(once) < 2 * params.flat.size + 10_000


def test_what_float16_cannot_hold_is_refused(tmp_path):
    params = initialise(CONFIG, 8)
    params["mlm.bias"][2] = 7e4
    with pytest.raises(InputError, match=r"transform\.dense\.bias has values beyond the range of float16"):
        hub.save_hf(tmp_path / "x", CONFIG, params, dtype="float16")
    assert not (tmp_path / "x").exists()
    hub.save_hf(tmp_path / "x", CONFIG, params, dtype="bfloat16")
    with pytest.raises(InputError, match="dtype='int8' cannot be stored"):
        hub.save_hf(tmp_path / "x", CONFIG, params, dtype="int8")


def test_relatives_of_bert_are_read_and_their_extras_listed(tmp_path):
    params = initialise(CONFIG, 1)
    hub.save_hf(tmp_path, CONFIG, params)
    change_fields(tmp_path, model_type=None, cell={}, emb_size=6, structure=[])  # as in TinyBERT's folders
    extra = {f"fit_denses.{number}.weight": np.ones((9, 6), np.float32) for number in range(3)}
    save_file(load_file(tmp_path / "model.safetensors") | extra, tmp_path / "model.safetensors")
    config, loaded, report = hub.load(tmp_path)
    assert (config, report.missing, report.unused) == (CONFIG, (), tuple(extra))
    assert loaded.flat.tobytes() == params.flat.tobytes()


@pytest.mark.parametrize("kind", ["RoBERTa", "DistilBERT", "ELECTRA", "ALBERT"])
def test_relatives_with_another_arithmetic_are_refused(kind, tmp_path):
    hub.save_hf(tmp_path, CONFIG, initialise(CONFIG, 1))
    beginning = kind.lower()
    change_fields(tmp_path, model_type=beginning)
    with pytest.raises(InputError, match=f"model_type='{beginning}' is not a BERT"):
        hub.load(tmp_path)
    change_fields(tmp_path, model_type=None)
    tensors = {f"{beginning}.x": np.ones(1, np.float32)} | load_file(tmp_path / "model.safetensors")
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=f"holds weights of {kind}, which computes differently"):
        hub.load(tmp_path)


def test_the_same_folder_twice_is_the_same_bytes(kind, saved, tmp_path):
    folder, params = saved
    hub.save_hf(tmp_path / "again", CONFIG, params, LABELS.get(kind, ()))
    assert stored_tensors(tmp_path / "again") == stored_tensors(folder)
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_every_kind_of_head_is_in_every_table():
    with_outputs = {name for name, kind in KINDS.items() if kind.outputs != 0}
    assert with_outputs == set(HEADS) == set(foreign.TASKS)
    assert with_outputs | {"pretraining", "none"} == set(card.PURPOSES)
    assert with_outputs == {name for name, kind in KINDS.items() if kind.loss}
    cases = task_losses(SIZES["ugly"], np.random.default_rng(0))
    assert with_outputs == {case.variant.split()[0] for case in cases}


def test_each_class_of_transformers_names_its_kind_of_head():
    """Three kinds are saved as the class for whole texts, which stands for the first."""
    found = {kind: kind_named({"architectures": [row.architecture]}) for kind, row in KINDS.items()}
    shared = {
        "multilabel": "classify",
        "regress": "classify",
        "cosine": "pretraining",
        "contrastive": "pretraining",
    }
    assert found == {kind: kind for kind in KINDS} | shared
    assert kind_named({"architectures": ["BertForSomethingElse"]}) is None
    assert kind_named({}) is None


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_configuration_names_the_type_of_weights_unless_it_is_float32(dtype, tmp_path):
    hub.save_hf(tmp_path, CONFIG, initialise(CONFIG, 5), dtype=dtype)
    assert fields_of(tmp_path).get("dtype", "float32") == dtype
    assert {str(one.dtype) for one in load_file(tmp_path / "model.safetensors").values()} == {dtype}
    assert ("dtype" in fields_of(tmp_path)) == (dtype != "float32")
