"""Names of options as other libraries have them: answered with ours, which exist."""

import copy
import importlib.util
import inspect
import re
from dataclasses import fields

import pytest
from paths import ROOT

import minibert
from minibert.api.runs import FinetuneCall, PretrainCall
from minibert.ask.gaps import Guess
from minibert.ask.inference import Encoded
from minibert.base.errors import InputError
from minibert.base.foreign_names import (
    FOREIGN_ARGUMENTS,
    FOREIGN_ATTRIBUTES,
    FOREIGN_NAMES,
    FOREIGN_TASKS,
    advice_for,
)
from minibert.experiments.comparison import Comparison
from minibert.finetuning.explaining import Explanation
from minibert.tasks import registry
from minibert.tokenizer.encoding import BatchEncoding, Encoding

FINETUNE = {field.name for field in fields(FinetuneCall)}
PRETRAIN = {field.name for field in fields(PretrainCall)}
ENCODER = {field.name for field in fields(minibert.TextEncoder)}
CLASSIFIER = {field.name for field in fields(minibert.TextClassifier)}


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_what_a_foreign_name_is_answered_with_exists(name):
    foreign = FOREIGN_NAMES[name]
    assert set(foreign.ours) <= FINETUNE | PRETRAIN | CLASSIFIER | ENCODER
    assert foreign.ours or foreign.note
    answered = [advice_for(name, known) for known in (FINETUNE, PRETRAIN, CLASSIFIER, ENCODER)]
    assert any(answered), "no function has anything of the kind"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("lr", "learning_rates"),
        ("learning_rate", "learning_rates"),
        ("num_train_epochs", "epochs"),
        ("n_epochs", "epochs"),
        ("output_dir", "out"),
        ("seed", "random_state"),
        ("show", "verbose"),
        ("per_device_train_batch_size", "batch_size"),
        ("steps", "max_steps"),
        ("fp16", 'dtype="bfloat16"'),
        ("bf16", 'dtype="bfloat16"'),
        ("max_seq_length", "max_length"),
        ("gradient_accumulation_steps", "accumulate"),
        ("test_size", "split_dev"),
        ("class_weight", "class_weights"),
        ("n_jobs", "threads"),
        ("warmup_ratio", "warmup"),
    ],
)
def test_estimators_answer_a_foreign_name_with_theirs(name, ours):
    with pytest.raises(TypeError, match="has no argument") as refused:
        minibert.TextClassifier("model", **{name: 1})
    assert f"did you mean {ours}" in str(refused.value)
    with pytest.raises(InputError, match="has no parameter") as refused:
        minibert.TextClassifier("model").set_params(**{name: 1})
    assert f"did you mean {ours}" in str(refused.value)


@pytest.mark.parametrize(
    ("function", "name", "ours"),
    [
        (minibert.finetune, "lr", "learning_rates"),
        (minibert.finetune, "random_state", "seed"),
        (minibert.finetune, "verbose", "show"),
        (minibert.finetune, "model_name_or_path", "model"),
        (minibert.finetune, "resume_from_checkpoint", "resume"),
        (minibert.pretrain, "lr", "learning_rate"),
        (minibert.pretrain, "max_steps", "steps"),
        (minibert.pretrain, "num_train_epochs", "minutes"),
        (minibert.pretrain, "epochs", "minutes"),
        (minibert.pretrain, "max_seq_length", "seq_length"),
        (minibert.pretrain, "mlm_probability", "masked_lm_prob"),
        (minibert.pretrain, "hidden_size", "size"),
    ],
)
def test_runs_answer_a_foreign_name_with_theirs(function, name, ours):
    with pytest.raises(TypeError, match=rf"has no argument '{name}'; did you mean {ours}\?"):
        function(**{name: 1})


def test_what_is_done_in_any_case_is_left_out():
    kept = "'load_best_model_at_end'; the best epoch on dev is kept in any case; leave it out"
    with pytest.raises(TypeError, match=kept):
        minibert.TextClassifier("model", load_best_model_at_end=True)
    assert advice_for("best_model", CLASSIFIER) == ""


def test_a_configuration_file_is_answered_alike(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"num_train_epochs": 3}')
    with pytest.raises(
        InputError, match="'num_train_epochs' is not an option of this command; did you mean 'epochs'"
    ):
        minibert.api.runs.FinetuneOptions.configured(path, {})


CALLS = {
    "Bert.encode": minibert.Bert.encode,
    "Bert.fill_mask": minibert.Bert.fill_mask,
    "Encoded.vectors": Encoded.vectors,
    "Tokenizer.__call__": minibert.Tokenizer.__call__,
    "Tokenizer.encode": minibert.Tokenizer.encode,
    "Tokenizer.decode": minibert.Tokenizer.decode,
    "Tokenizer.from_pretrained": minibert.Tokenizer.from_pretrained,
    "Bert.from_pretrained": minibert.Bert.from_pretrained,
    "load": minibert.load,
    "export": minibert.export,
}


@pytest.mark.parametrize(
    ("call", "name"), [(call, name) for call, names in FOREIGN_ARGUMENTS.items() for name in names]
)
def test_calls_answer_arguments_of_other_libraries(call, name):
    function = CALLS[call]
    known = inspect.signature(function).parameters
    assert name not in known
    positional = [None] * sum(one.default is one.empty for one in known.values())
    with pytest.raises(TypeError) as refused:
        function(*positional, **{name: 1})
    remedy = FOREIGN_ARGUMENTS[call][name]
    assert str(refused.value) == f"{call}() has no argument {name!r}; {remedy[0].lower()}{remedy[1:]}"
    if meant := re.search(r"did you mean (\w+)\?", str(refused.value)):
        if "overrides" in known:
            known = inspect.signature(minibert.Tokenizer).parameters
        assert meant[1] in known


OBJECTS = {
    "minibert": minibert,
    "Bert": minibert.Bert.__new__(minibert.Bert),
    "Encoded": Encoded.__new__(Encoded),
    "Guess": Guess("ship", 0.5),
    "Encoding": Encoding.__new__(Encoding),
    "BatchEncoding": BatchEncoding.__new__(BatchEncoding),
    "Tokenizer": minibert.Tokenizer.__new__(minibert.Tokenizer),
    "TextEncoder": minibert.TextEncoder("nowhere"),
    "Estimator": minibert.TextRegressor("nowhere"),
    "TextClassifier": minibert.MultilabelClassifier("nowhere"),
    "TokenTagger": minibert.TokenTagger("nowhere"),
    "QuestionAnswerer": minibert.QuestionAnswerer("nowhere"),
    "Explanation": Explanation.__new__(Explanation),
    "Run": minibert.Run.__new__(minibert.Run),
    "Comparison": Comparison.__new__(Comparison),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in FOREIGN_ATTRIBUTES.items() for name in names]
)
def test_objects_answer_attributes_of_other_libraries(kind, name):
    owner = OBJECTS[kind]
    assert not hasattr(owner, name)
    with pytest.raises(AttributeError) as refused:
        getattr(owner, name)
    remedy = FOREIGN_ATTRIBUTES[kind][name]
    advice = remedy[0].lower() + remedy[1:]
    called = "module 'minibert'" if owner is minibert else f"{type(owner).__name__!r} object"
    assert str(refused.value) == f"{called} has no attribute {name!r}; {advice}"
    for used in re.findall(r"\b(\w+)\(", remedy):
        assert any(hasattr(one, used) for one in OBJECTS.values()), used


@pytest.mark.parametrize(
    ("kind", "name", "advice"),
    [
        (minibert.TextClassifier, "from_pretrained", "use minibert.load(folder)."),
        (minibert.MultilabelClassifier, "labels_", "use classes_."),
        (minibert.TextEncoder, "load", "use TextEncoder(folder)."),
        (minibert.Tokenizer, "from_file", "use from_pretrained(path), which reads files as well."),
        (minibert.Run, "load", "use Run.open(folder)."),
    ],
)
def test_classes_answer_attributes_of_other_libraries(kind, name, advice):
    with pytest.raises(AttributeError) as refused:
        getattr(kind, name)
    assert str(refused.value) == f"type object {kind.__name__!r} has no attribute {name!r}; {advice}"
    with pytest.raises(AttributeError, match=f"^type object '{kind.__name__}' has no attribute 'xyzzy'$"):
        kind.xyzzy  # noqa: B018


def test_encodings_of_one_text_answer_attributes_as_others_do():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ship"]
    encoding = minibert.Tokenizer(pieces)("ship")
    with pytest.raises(AttributeError, match="^'TextEncoding' object has no attribute 'to'; it holds"):
        encoding.to("cuda")
    with pytest.raises(AttributeError, match="^'TextEncoding' object has no attribute 'xyzzy'$"):
        encoding.xyzzy  # noqa: B018
    assert encoding.ids.tolist() == [2, 5, 3]


@pytest.mark.parametrize("name", FOREIGN_TASKS)
def test_tasks_of_other_libraries_are_answered_with_ours(name):
    assert FOREIGN_TASKS[name] in registry.TASKS
    for given in (name, name.replace("-", "_").upper()):
        with pytest.raises(InputError) as refused:
            registry.create(given, {})
        assert str(refused.value) == f"task={given!r} is not known; did you mean {FOREIGN_TASKS[name]}?"


def test_a_missing_attribute_is_what_python_says_and_objects_can_be_copied():
    empty = Encoded.__new__(Encoded)
    with pytest.raises(AttributeError, match="^'Encoded' object has no attribute 'xyzzy'$"):
        empty.xyzzy  # noqa: B018
    assert not hasattr(empty, "xyzzy") and getattr(empty, "last_hidden_state", 3) == 3
    assert isinstance(copy.copy(empty), Encoded)


def test_an_error_inside_a_property_is_shown_as_it_is():
    class Sub(minibert.Bert):
        config = minibert.BertConfig.from_size("tiny", vocab_size=100)
        width = property(lambda self: self.config.hidden_sise)
        parameters = property(lambda self: self.config.hidden_sise)

    empty = Sub.__new__(Sub)
    for name in ("width", "parameters"):
        with pytest.raises(AttributeError, match="^'BertConfig' object has no attribute 'hidden_sise'"):
            getattr(empty, name)
    with pytest.raises(AttributeError, match="^'Sub' object has no attribute 'cuda'; an engine"):
        empty.cuda  # noqa: B018


@pytest.mark.parametrize(
    ("method", "argument", "advice"),
    [
        ("fit", "epochs", "give it to TextClassifier(...)."),
        ("fit", "num_train_epochs", "give epochs to TextClassifier(...)."),
        ("fit", "batch_size", "give it to TextClassifier(...)."),
        ("fit", "xyzzy", "leave it out."),
        ("predict", "batch_size", "texts are processed in batches of a few thousand tokens; leave it out."),
        ("predict_proba", "verbose", "give it to TextClassifier(...)."),
        ("score", "sample_weight", "rows have no weights, so leave it out."),
        ("fit", "texts", "did you mean X?"),
        ("fit", "Y", "did you mean y?"),
        ("predict", "return_all_scores", "predict_proba(X) has the probability of each class."),
        ("explain", "target", "did you mean answer?"),
        ("evaluate", "yy", "did you mean y?"),
        ("explain", "answr", "did you mean answer?"),
        ("score", "sel", "leave it out."),
        ("fit", "eval_set", "fit takes dev=(X_dev, y_dev)."),
        ("predict", "eval_set", "leave it out."),
    ],
)
def test_methods_of_estimators_say_where_an_argument_belongs(method, argument, advice):
    classifier = minibert.TextClassifier("nowhere")
    with pytest.raises(TypeError) as refused:
        getattr(classifier, method)(["a film"], **{argument: 3})
    assert str(refused.value) == f"{method}() has no argument {argument!r}; {advice}"


def test_only_a_fit_that_has_dev_is_said_to_take_it():
    encoder = minibert.TextEncoder("nowhere")
    with pytest.raises(TypeError, match="^fit.. has no argument 'validation_data'; leave it out[.]$"):
        encoder.fit(["a"], validation_data=1)


def test_an_argument_that_is_given_twice_is_refused():
    with pytest.raises(TypeError, match=r"^finetune\(\) got task twice; give it once[.]$"):
        minibert.finetune("sst2", task="mrpc", data="d", model="m")
    with pytest.raises(TypeError, match=r"^TextClassifier\(\) got model twice; give it once[.]$"):
        minibert.TextClassifier("a", model="b")
    with pytest.raises(TypeError, match="has no argument 'sel'; leave it out"):
        minibert.TextClassifier("a", sel=1)


def test_an_argument_of_a_call_that_is_misspelt_is_answered_with_the_right_one():
    with pytest.raises(TypeError, match=r"^load\(\) has no argument 'thread'; did you mean threads\?$"):
        minibert.load("nowhere", thread=1)
    with pytest.raises(
        TypeError, match=r"^Tokenizer.from_pretrained\(\) has no argument 'lowercsae'; did you"
    ):
        minibert.Tokenizer.from_pretrained("nowhere", lowercsae=True)


def test_other_wrong_arguments_and_errors_within_are_left_to_python():
    with pytest.raises(TypeError, match="unexpected keyword argument 'xyzzy'"):
        minibert.load("nowhere", xyzzy=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        minibert.load()


def test_the_tables_of_the_page_are_those_of_the_errors():
    spec = importlib.util.spec_from_file_location("foreign_names", ROOT / "docs" / "foreign_names.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "coming-from.md").read_text("utf-8")
    assert page.count("\n| `") > 80
    assert page == module.filled(page), "run: python docs/foreign_names.py"
