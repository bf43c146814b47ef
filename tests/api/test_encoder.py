"""`TextEncoder`: the vectors of `Bert.encode`, as a transformer of scikit-learn's protocol."""

import inspect
import pickle

import numpy as np
import pytest
from small_tasks import reviews, write_model
from threadpoolctl import threadpool_info, threadpool_limits

import minibert
from minibert.base.errors import InputError, InputWarning

TEXTS = [text for text, _ in reviews(30, 1)]
PAIRS = list(zip(TEXTS[:10], TEXTS[10:20], strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def bert(folder):
    return minibert.load(folder, engine="numpy")


@pytest.mark.parametrize("pool", [None, "cls", "mean", "max"])
@pytest.mark.parametrize("texts", [TEXTS, PAIRS])
def test_vectors_equal_those_of_encode_in_the_order_of_the_texts(folder, bert, texts, pool):
    encoder = minibert.TextEncoder(folder, pool=pool, engine="numpy")
    vectors = encoder.fit_transform(texts)
    expected = np.concatenate([bert.encode(text).vectors(pool) for text in texts])
    assert vectors.dtype == np.float32 and vectors.shape == (len(texts), bert.config.H)
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert np.std(expected, axis=0).max() > 1e-3  # they differ, so that an exchange would show


def test_layers_are_concatenated_and_normalised_vectors_have_length_one(folder, bert):
    encoder = minibert.TextEncoder(folder, layers=[0, -1], normalize=True, engine="numpy")
    vectors = encoder.transform(TEXTS)
    H = bert.config.H
    states = bert.encode(TEXTS[3]).hidden_states
    expected = np.concatenate([states[0].mean(0), states[-1].mean(0)])
    np.testing.assert_allclose(vectors[3], expected / np.linalg.norm(expected), atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    names = encoder.get_feature_names_out()
    assert names.tolist() == [f"textencoder{number}" for number in range(2 * H)]


def test_stream_reads_at_most_one_chunk_ahead(folder):
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield TEXTS[read % 30]

    encoder = minibert.TextEncoder(folder, engine="numpy")
    stream = encoder.stream(endless())
    first = [next(stream) for _ in range(3)]
    expected = encoder.transform([TEXTS[1], TEXTS[2], TEXTS[3]])
    np.testing.assert_allclose(first, expected, atol=2e-6)
    assert read < 20_000


def test_stream_does_not_limit_threads_while_the_caller_works(folder):
    def threads():
        return [library["num_threads"] for library in threadpool_info()]

    encoder = minibert.TextEncoder(folder, engine="numpy", threads=1)
    with threadpool_limits(2):
        before = threads()
        stream = encoder.stream(TEXTS)
        during = [threads() for _ in stream]
    assert 2 in before and during == [before] * len(TEXTS)


def test_columns_are_read_from_tables_and_bad_rows_are_named(folder):
    table = {"review": TEXTS, "stars": list(range(30))}
    encoder = minibert.TextEncoder(folder, text="review", engine="numpy")
    assert (encoder.transform(table) == encoder.transform(TEXTS)).all()
    with pytest.raises(InputError, match="Row 2 "):
        encoder.transform(["a", "b", 3.5])


def test_set_params_and_repr_show_parameters_and_the_model_loads_once(folder, monkeypatch):
    encoder = minibert.TextEncoder(str(folder), engine="numpy")
    copy = type(encoder)(**encoder.get_params()).set_params(normalize=True, pool="max")
    assert repr(copy) == f"TextEncoder({str(folder)!r}, pool='max', normalize=True, engine='numpy')"
    loads = []
    load = minibert.Bert.from_pretrained
    monkeypatch.setattr(minibert.Bert, "from_pretrained", lambda *a, **k: loads.append(a) or load(*a, **k))
    for pool in ("mean", "max"):
        copy.set_params(pool=pool).fit().transform(TEXTS)
    assert len(loads) == 1
    copy.set_params(dtype="float64")
    assert copy.transform(TEXTS).dtype == np.float64 and len(loads) == 2
    with pytest.raises(InputError, match="has no parameter 'pooling'"):
        copy.set_params(pooling="cls")


def test_encoder_uses_a_loaded_model_and_pickles_it(bert):
    encoder = minibert.TextEncoder(bert, normalize=True)
    vectors = encoder.transform(TEXTS)
    again = pickle.loads(pickle.dumps(encoder))
    assert (again.transform(TEXTS) == vectors).all()


def test_one_warning_counts_the_truncated_texts(folder):
    encoder = minibert.TextEncoder(folder, max_length=5, engine="numpy")
    with pytest.warns(InputWarning, match="27 texts have more than 5 tokens; the ends were cut"):
        encoder.transform(TEXTS)


def test_encoder_explains_foreign_names_and_help_shows_every_parameter():
    with pytest.raises(TypeError, match="no argument 'normalize_embeddings'; did you mean normalize"):
        minibert.TextEncoder("model", normalize_embeddings=True)
    names = list(inspect.signature(minibert.TextEncoder).parameters)
    assert names == list(minibert.TextEncoder("model").get_params())
    assert all(f"\n{name} : " in minibert.TextEncoder.__doc__ for name in names)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"pool": "none"}, "makes one vector of a text"),
        ({"pool": "middle"}, "pool='middle' is unknown"),
        ({"layers": 99}, "99"),
        ({"max_length": 1}, "max_length=1 is not possible"),
        ({"model": "nowhere"}, "nowhere"),
    ],
)
def test_fit_refuses_parameters_that_do_not_fit_the_model(folder, arguments, message):
    encoder = minibert.TextEncoder(**{"model": folder, "engine": "numpy"} | arguments)
    with pytest.raises(InputError, match=message):
        encoder.fit()


def test_stream_refuses_a_single_string_and_empty_texts(folder):
    encoder = minibert.TextEncoder(folder, engine="numpy")
    with pytest.raises(InputError) as raised:
        next(encoder.stream("films.csv"))
    advice = "give an iterable of texts, such as a list or open('films.csv')."
    assert str(raised.value) == f"texts='films.csv' is one string; {advice}"
    for empty in ("", ("a", " ")):
        with pytest.raises(InputError, match="^The text at index 2 is empty; give one with words in it"):
            list(encoder.stream(["a film", "the film", empty]))
