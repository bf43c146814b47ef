"""What is asked of a model, beside plain computations with transformers: scores, gaps, classes, pairs."""

import numpy as np
import pytest
from one_text import fill_masks
from small_tasks import small_config
from text_vectors import vectors_of

from minibert import Bert, Tokenizer, hub
from minibert.ask.scoring import score_texts
from minibert.finetuning.models import Finetuned
from minibert.finetuning.zero_shot import zero_shot
from minibert.model.params import PRETRAINING, Head, initialise
from minibert.tasks.stored import TaskFile
from minibert.tokenizer import SPECIAL_TOKENS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = (
    "the a film book song ##s ##un un ##read ##able is was very good dull poor it of play here . , !".split()
)
TEXTS = ["the film is very good .", "a dull , unreadable book", "it was", "the songs of xyz !"]
NLI = ("contradiction", "neutral", "entailment")


def write_model(folder, head=PRETRAINING, labels=()):
    """A folder of a random model that knows `WORDS`; its weights are large, so that it has opinions."""
    config = small_config(vocab_size=len(SPECIAL_TOKENS) + len(WORDS), initializer_range=0.3)
    hub.save_hf(folder, config, initialise(config, 4, head=head), labels)
    Tokenizer([*SPECIAL_TOKENS, *WORDS]).save_pretrained(folder, config.P)
    return folder


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A random model with a masked-LM head: our model, theirs, and their tokenizer."""
    torch.set_num_threads(1)
    folder = write_model(tmp_path_factory.mktemp("model"))
    ours = Bert.from_pretrained(folder, "numpy", dtype="float64")
    theirs = transformers.BertForMaskedLM.from_pretrained(folder, dtype=torch.float64).eval()
    return ours, theirs, transformers.AutoTokenizer.from_pretrained(folder)


def log_probabilities(model, ids, place):
    with torch.no_grad():
        return torch.log_softmax(model(input_ids=ids[None]).logits[0, place], -1)


@pytest.mark.parametrize("within_word", ["token", "l2r"])
def test_scores_of_texts_are_those_of_one_mask_at_a_time(pretrained, within_word):
    ours, theirs, tokenizer = pretrained
    for text, score in zip(TEXTS, score_texts(ours, TEXTS, within_word), strict=True):
        encoded = tokenizer(text, return_tensors="pt")
        ids, words = encoded.input_ids[0], encoded.word_ids()
        expected = []
        for place in range(1, len(ids) - 1):
            hidden = ids.clone()
            for other in range(place, len(ids)):
                if other == place or (within_word == "l2r" and words[other] == words[place]):
                    hidden[other] = tokenizer.mask_token_id
            expected.append(float(log_probabilities(theirs, hidden, place)[ids[place]]))
        assert np.abs(score.log_probabilities - expected).max() < 1e-6
        assert abs(score.to_dict()["log_probability"] - sum(expected)) < 1e-6


def test_gaps_are_filled_as_the_pipeline_fills_them(pretrained):
    ours, theirs, tokenizer = pretrained
    fill = transformers.pipeline("fill-mask", model=theirs, tokenizer=tokenizer)
    text, words = "the [MASK] is very good .", ["film", "book", "song"]
    for asked, options in (({"top": 5}, {"top_k": 5}), ({"targets": words}, {"targets": words})):
        (found,) = fill_masks(ours, text, **asked)
        expected = fill(text, **options)
        assert [guess.token for guess in found] == [one["token_str"] for one in expected]
        assert np.allclose([g.probability for g in found], [one["score"] for one in expected], atol=1e-6)


@pytest.mark.parametrize("several", [False, True])
def test_any_classes_are_chosen_as_the_pipeline_chooses_them(tmp_path, several):
    folder = write_model(tmp_path, Head("classify", 3), NLI)
    TaskFile("classify", NLI, 24, {"second": "second"}).save(folder)
    ours = Finetuned.from_pretrained(folder, "numpy", dtype="float64")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ask = transformers.pipeline("zero-shot-classification", model=theirs.eval(), tokenizer=tokenizer)
    classes, template = ["film", "book", "song", "a play"], "the {} is here ."
    found = zero_shot(ours, TEXTS, classes, template=template, several=several)
    said = ask(TEXTS, classes, hypothesis_template=template, multi_label=several)
    for one, other in zip(found, said, strict=True):
        expected = dict(zip(other["labels"], other["scores"], strict=True))
        assert one["probabilities"] == pytest.approx(expected, abs=1e-6)
        chosen = one["labels"][:1] if several else [one["label"]]
        assert chosen in ([], other["labels"][:1])


def test_vectors_of_pairs_are_those_of_transformers(pretrained, tmp_path):
    ours, theirs, tokenizer = pretrained
    pairs = [("the film is good", "a good film ."), ("it was dull", "the book")]
    found = vectors_of(ours, pairs, pool="max", normalize=True)
    for pair, vector in zip(pairs, found, strict=True):
        with torch.no_grad():
            states = theirs.bert(**tokenizer(*pair, return_tensors="pt")).last_hidden_state[0]
        expected = torch.nn.functional.normalize(states.max(0).values, dim=0)
        assert np.abs(vector - expected.numpy()).max() < 1e-10
