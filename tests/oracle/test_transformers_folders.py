"""Folders that were fine-tuned with transformers answer as transformers does: logits, labels, predictions."""

import json

import numpy as np
import pytest
import torch
import transformers

import minibert
from minibert import (
    Bert,
    InputError,
    MultilabelClassifier,
    QuestionAnswerer,
    TextClassifier,
    TextRegressor,
    Tokenizer,
    TokenTagger,
    cli,
)
from minibert.data.choice import ChoiceExample
from minibert.data.glue import TextExample
from minibert.finetuning.models import Finetuned
from minibert.finetuning.run import predict
from minibert.finetuning.zero_shot import zero_shot
from minibert.tasks import registry
from minibert.tasks.answering import answer
from minibert.tasks.words import tag_texts

LETTERS = [chr(97 + number) for number in range(26)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{one}" for one in LETTERS), ".", "?"]
SHAPE = {
    "vocab_size": len(VOCAB),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
    "initializer_range": 0.4,
}
TEXTS = ["a b c", "cab.", "z? y x " * 4]
PAIRS = [("a b", "c"), ("x", "zebra crossing?")]
CLOSE = {"rtol": 0, "atol": 1e-5}
ORDER = ["yes", "no", "perhaps"]  # not that of the alphabet


@pytest.fixture
def save(tmp_path):
    """Save a model of transformers with a vocabulary; return its folder and the model."""

    def make(kind, labels=(), names=None, **fields):
        torch.manual_seed(1)
        if labels:
            fields |= {
                "id2label": dict(enumerate(labels)),
                "label2id": {name: number for number, name in enumerate(labels)},
            }
        model = getattr(transformers, kind)(transformers.BertConfig(**SHAPE, **fields)).eval()
        model.save_pretrained(tmp_path / "model")
        Tokenizer(VOCAB).save_pretrained(tmp_path / "model", SHAPE["max_position_embeddings"])
        return tmp_path / "model", model

    return make


def change(folder, **fields):
    """Alter a configuration; None takes a field out."""
    path = folder / "config.json"
    both = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in both.items() if value is not None}))


def logits_of(model, folder, text, pair=None, **more):
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    with torch.no_grad():
        return model(**tokenizer(text, pair, return_tensors="pt", **more))


def our_logits(folder, examples):
    model = Finetuned.from_pretrained(folder)
    return model.outputs(model.features(examples))


def as_examples(texts):
    pairs = [(one, None) if isinstance(one, str) else one for one in texts]
    return [TextExample(str(number), *pair, None) for number, pair in enumerate(pairs)]


@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["single", "pairs"])
def test_classes_are_those_of_transformers(save, texts):
    folder, theirs = save("BertForSequenceClassification", ORDER)
    pairs = [(one,) if isinstance(one, str) else one for one in texts]
    right = np.concatenate([logits_of(theirs, folder, *pair).logits for pair in pairs])
    np.testing.assert_allclose(our_logits(folder, as_examples(texts)), right, **CLOSE)
    model = minibert.load(folder)
    assert isinstance(model, TextClassifier) and model.classes_.tolist() == ORDER
    assert model.predict(texts).tolist() == [ORDER[number] for number in right.argmax(1)]
    assert model.score(texts, model.predict(texts)) == 1
    assert model.predict(PAIRS + PAIRS).tolist() == 2 * model.predict(PAIRS).tolist()
    chances = torch.softmax(torch.tensor(right), 1).numpy()
    np.testing.assert_allclose(model.predict_proba(texts), chances, **CLOSE)


def test_classes_without_names_are_numbered(save):
    folder, _ = save("BertForSequenceClassification")
    assert minibert.load(folder).classes_.tolist() == ["LABEL_0", "LABEL_1"]


def test_pipeline_s_answers_are_the_command_s(save, capsys):
    folder, _ = save("BertForSequenceClassification", ORDER)
    theirs = transformers.pipeline("text-classification", str(folder), top_k=None)
    assert cli.main(["classify", "--model", str(folder), TEXTS[0], "--json"]) == 0
    ours = json.loads(capsys.readouterr().out)
    (found,) = theirs([TEXTS[0]])
    assert ours["label"] == found[0]["label"]
    for one in found:
        assert ours["probabilities"][one["label"]] == pytest.approx(one["score"], abs=1e-5)
    classify = ["classify", "--model", str(folder), *PAIRS[0], "--json"]
    assert cli.main(classify) == 2
    assert "does not say whether it reads single texts or pairs; give --pair if" in capsys.readouterr().err
    assert cli.main([*classify, "--pair"]) == 0
    found = theirs([{"text": PAIRS[0][0], "text_pair": PAIRS[0][1]}])[0][0]
    ours = json.loads(capsys.readouterr().out)
    assert ours["probabilities"][found["label"]] == pytest.approx(found["score"], abs=1e-5)


def test_several_classes_go_through_a_logistic_function(save):
    kind = {"problem_type": "multi_label_classification"}
    folder, theirs = save("BertForSequenceClassification", ["art", "sport", "war"], **kind)
    right = np.concatenate([torch.sigmoid(logits_of(theirs, folder, text).logits) for text in TEXTS])
    model = minibert.load(folder)
    assert isinstance(model, MultilabelClassifier)
    np.testing.assert_allclose(model.predict_proba(TEXTS), right, **CLOSE)
    np.testing.assert_array_equal(model.predict(TEXTS), right > 0.5)


@pytest.mark.parametrize("problem_type", ["regression", None])
def test_one_output_is_a_number(save, problem_type):
    folder, theirs = save("BertForSequenceClassification", ["score"], problem_type=problem_type)
    right = [float(logits_of(theirs, folder, text).logits) for text in TEXTS]
    if problem_type:
        model = minibert.load(folder)
    else:
        with pytest.warns(UserWarning, match="predictions are logits"):
            model = minibert.load(folder)
    assert isinstance(model, TextRegressor)
    np.testing.assert_allclose(model.predict(TEXTS), right, **CLOSE)


def test_several_numbers_are_refused_when_loading(save):
    folder, _ = save("BertForSequenceClassification", ["a", "b"], problem_type="regression")
    with pytest.raises(InputError, match="load it with Bert.from_pretrained"):
        minibert.load(folder)
    assert Bert.from_pretrained(folder).encode("a b").vectors().shape == (1, 32)


def test_tags_of_words_are_those_of_transformers(save, capsys):
    tags = ["B-LOC", "I-LOC", "O", "B-PER", "I-PER"]
    folder, theirs = save("BertForTokenClassification", tags)
    words = ["cab", "a", "zoo", ".", "hat"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    asked = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        scores = theirs(**asked).logits[0].numpy()
    ids = asked.word_ids()
    firsts = [ids.index(number) for number in range(len(words))]
    model = minibert.load(folder)
    assert isinstance(model, TokenTagger)
    assert model.predict([words]) == [[tags[number] for number in scores[firsts].argmax(1)]]
    fitted = Finetuned.from_pretrained(folder)
    (feature,) = fitted.features(model._examples([words]))
    np.testing.assert_allclose(fitted.outputs([feature])[0], scores[firsts], **CLOSE)
    (told,) = tag_texts(fitted, [" ".join(words)])
    assert [one["tag"] for one in told["words"]] == model.predict([words])[0]
    assert cli.main(["tag", "--model", str(folder), " ".join(words), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["words"] == told["words"]


def test_answers_have_the_scores_of_transformers(save, capsys):
    folder, theirs = save("BertForQuestionAnswering")
    question, context = "who?", "a cab went by. the hat was red."
    out = logits_of(theirs, folder, question, context)
    right = torch.stack([out.start_logits[0], out.end_logits[0]], 1).numpy()
    model = minibert.load(folder)
    assert isinstance(model, QuestionAnswerer)
    (ours,) = our_logits(folder, model._examples([(question, context)]))
    np.testing.assert_allclose(ours, right, **CLOSE)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    asked = tokenizer(question, context, return_offsets_mapping=True)
    inside = [number for number, one in enumerate(asked.sequence_ids()) if one == 1]
    spans = [(first, last) for first in inside for last in inside if 0 <= last - first < 30]
    first, last = max(spans, key=lambda span: right[span[0], 0] + right[span[1], 1])
    places = asked["offset_mapping"]
    expected = context[places[first][0] : places[last][1]]
    assert model.predict([(question, context)]) == [expected]
    assert answer(Finetuned.from_pretrained(folder), question, context)["text"] == expected
    assert cli.main(["answer", "--model", str(folder), question, context, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"][0]["text"] == expected


def test_choices_have_the_scores_of_transformers(save, tmp_path):
    folder, theirs = save("BertForMultipleChoice")
    context, endings = "a cab", ["went by", "ate hats", "z"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    asked = tokenizer([context] * 3, endings, padding=True, return_tensors="pt")
    with torch.no_grad():
        right = theirs(**{name: value[None] for name, value in asked.items()}).logits[0].numpy()
    task = registry.create("copa")
    model = Finetuned.from_pretrained(folder, task=task)
    example = ChoiceExample("0", context, "", tuple(endings), None)
    (ours,) = model.outputs(model.features([example]))
    np.testing.assert_allclose(ours, right, **CLOSE)
    with pytest.raises(InputError, match="minibert predict --task swag"):
        minibert.load(folder)


def test_next_sentences_have_the_scores_of_transformers(save):
    folder, theirs = save("BertForNextSentencePrediction")
    right = np.concatenate([logits_of(theirs, folder, *pair).logits for pair in PAIRS])
    np.testing.assert_allclose(minibert.load(folder).next_sentence_logits(PAIRS), right, **CLOSE)


def test_official_task_is_asked_by_the_names_of_labels(save, tmp_path):
    names = ["contradiction", "neutral", "entailment"]
    folder, theirs = save("BertForSequenceClassification", names)
    (found,) = zero_shot(folder, ["a b c"], ["cab", "hat"], template="{} x.")
    scores = [logits_of(theirs, folder, "a b c", f"{one} x.").logits[0, 2] for one in ("cab", "hat")]
    chances = torch.softmax(torch.stack(scores), 0).tolist()
    assert [*found["probabilities"].values()] == pytest.approx(chances, abs=1e-5)
    model = Finetuned.from_pretrained(folder, task=registry.create("mnli"))
    assert model.task.name == "mnli" and model.labels == tuple(names)
    with pytest.raises(InputError, match="rename them in id2label"):
        Finetuned.from_pretrained(folder, task=registry.create("rte"))
    with pytest.raises(InputError, match="has other answers than ner"):
        Finetuned.from_pretrained(folder, task=registry.create("ner"))


@pytest.mark.parametrize("pairs", [False, True])
def test_table_is_predicted_with_its_second_texts(save, tmp_path, pairs):
    folder, theirs = save("BertForSequenceClassification", ORDER)
    rows = PAIRS if pairs else [(text,) for text in TEXTS]
    lines = [json.dumps(dict(zip(("text", "second"), row, strict=False))) for row in rows]
    (tmp_path / "new.jsonl").write_text("\n".join(lines) + "\n")
    predict(folder, tmp_path / "new.jsonl", "test", tmp_path / "out")
    found = (tmp_path / "out" / "classify-new.jsonl").read_text().splitlines()
    right = [ORDER[int(logits_of(theirs, folder, *row).logits.argmax())] for row in rows]
    assert [json.loads(line)["label"] for line in found] == right


def test_old_folder_without_a_class_is_recognised_by_its_tensors(save):
    folder, theirs = save("BertForSequenceClassification", ORDER)
    change(folder, architectures=None, model_type=None)
    right = [ORDER[int(logits_of(theirs, folder, text).logits.argmax())] for text in TEXTS]
    assert minibert.load(folder).predict(TEXTS).tolist() == right


def test_labels_that_are_alike_are_refused(save):
    folder, _ = save("BertForSequenceClassification", ORDER)
    change(folder, id2label={"0": "yes", "1": "no", "2": "yes"})
    with pytest.raises(InputError, match="has the label 'yes' for two outputs"):
        minibert.load(folder)


def test_saved_and_exported_models_answer_alike(save, tmp_path):
    folder, _ = save("BertForSequenceClassification", ORDER)
    model = minibert.load(folder)
    model.save(tmp_path / "saved")
    assert cli.main(["export", "--model", str(folder), "--out", str(tmp_path / "exported")]) == 0
    for name in ("saved", "exported"):
        other = minibert.load(tmp_path / name)
        for texts in (TEXTS, PAIRS):
            np.testing.assert_array_equal(other.predict_proba(texts), model.predict_proba(texts))


def test_encoder_of_a_classifier_gives_vectors(save):
    folder, theirs = save("BertForSequenceClassification", ORDER)
    with torch.no_grad():
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        right = theirs.bert(**tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state[0].mean(0)
    np.testing.assert_allclose(Bert.from_pretrained(folder).encode(TEXTS[0]).vectors()[0], right, **CLOSE)
