"""Misuses of the Python API: what engineers get wrong, as lines of code."""

from collections.abc import Callable
from functools import partial
from typing import Any

from small_tasks import reviews

import minibert

# Lines of code by what is wrong with them. FEW are twelve texts, XY as many labels, and WORDS lists of words.

MISUSES = {
    "labels: one too few": "TextClassifier('model').fit(FEW, XY[:-1])",
    "labels: none at all": "TextClassifier('model').fit(FEW)",
    "labels: one is None": "TextClassifier('model').fit(FEW, [None, *XY[1:]])",
    "labels: fractions for a classifier": "TextClassifier('model').fit(FEW, [n / 8 for n in range(12)])",
    "labels: numbers and strings": "TextClassifier('model').fit(FEW, [0, 'x'] * 6)",
    "labels: all the same": "TextClassifier('model').fit(FEW, ['x'] * 12)",
    "labels: one-hot for a classifier": "TextClassifier('model').fit(FEW, [[0, 1], [1, 0]] * 6)",
    "labels: strings for a regressor": "TextRegressor('model').fit(FEW, XY)",
    "labels: strings for several classes": "MultilabelClassifier('model').fit(FEW, XY)",
    "labels: a bar in a name": "MultilabelClassifier('model').fit(FEW, [['a|b'], ['c']] * 6)",
    "labels: a column that is not there": "TextClassifier('model').fit({'text': FEW}, 'stars')",
    "texts: one string": "TextClassifier('model').fit('a fine film', ['good'])",
    "texts: one is None": "TextClassifier('model').fit([None, *FEW[1:]], XY)",
    "texts: one is not a number": "TextClassifier('model').fit([float('nan'), *FEW[1:]], XY)",
    "texts: one is empty": "TextClassifier('model').fit(['', *FEW[1:]], XY)",
    "texts: one has no piece": "TextClassifier('model').fit(['\\u200d', *FEW[1:]], XY)",
    "texts: a set": "TextClassifier('model').fit(set(FEW), XY)",
    "texts: none": "TextClassifier('model').fit([], [])",
    "texts: one": "TextClassifier('model').fit(FEW[:1], XY[:1])",
    "texts: other columns": "TextClassifier('model').fit({'review': FEW, 'stars': XY}, 'stars')",
    "texts: pairs for a model of single ones": "load('tuned', 'numpy').predict([('a', 'the')])",
    "texts: a string to predict": "load('tuned', 'numpy').predict('a fine film')",
    "dev: texts alone": "TextClassifier('model').fit(FEW, XY, dev=FEW)",
    "dev: a list of two": "TextClassifier('model').fit(FEW, XY, dev=[FEW, XY])",
    "dev: a label that is not learnt": "TextClassifier('model').fit(FEW, XY, dev=(FEW, ['x', 'z'] * 6))",
    "dev: one is None": "TextClassifier('model').fit(FEW, XY, dev=([None, *FEW[1:]], XY))",
    "dev: a number for a regressor": "TextRegressor('model').fit(FEW, range(12), dev=(FEW[:1], [1]))",
    "dev: too small a share": "TextRegressor('model', split_dev=0.01).fit(FEW, range(12))",
    "tags: fewer than words": "TokenTagger('model').fit(WORDS, [['O']] * 12)",
    "tags: sentences for words": "TokenTagger('model').fit(FEW, [['O']] * 12)",
    "tags: an empty one": "TokenTagger('model').fit(WORDS, [[''] * len(row) for row in WORDS])",
    "answers: not in the paragraph": "QuestionAnswerer('model').fit([('who?', 'a whale')] * 2, ['Ahab'] * 2)",
    "answers: no 'text' in an object": "QuestionAnswerer('model').fit([('a?', 'b')], [{'answer': 1}])",
    "answers: one paragraph": "QuestionAnswerer('model').fit([('who?', 'the whale')] * 9, ['whale'] * 9)",
    "keyword: of transformers": "TextClassifier('model', num_train_epochs=3)",
    "keyword: of scikit-learn": "TextClassifier('model', max_iter=3)",
    "keyword: misspelt": "TextClassifier('model', epoch=3)",
    "keyword: of pretrain, from transformers": "pretrain('books', per_device_train_batch_size=8)",
    "keyword: of finetune, misspelt": "finetune('sst2', 'glue', 'model', epoch=3)",
    "parameter: misspelt": "TextClassifier('model').set_params(learning_rate=1e-3)",
    "parameter: below zero": "TextClassifier('model', epochs=-1).fit(FEW, XY)",
    "parameter: a string for a number": "TextClassifier('model', batch_size='16').fit(FEW, XY)",
    "parameter: a weight of no class": "TextClassifier('model', class_weights={'z': 2}).fit(FEW, XY)",
    "parameter: a seed that is a word": "TextClassifier('model', random_state='x').fit(FEW, XY)",
    "parameter: an engine that is none": "TextClassifier('model', engine='torch').fit(FEW, XY)",
    "parameter: longer than the model": "TextClassifier('model', max_length=512).fit(FEW, XY)",
    "model: a folder that is not there": "TextClassifier('nowhere').fit(FEW, XY)",
    "model: of another kind": "TextClassifier('gpt').fit(FEW, XY)",
    "model: not fitted": "TextClassifier('model').predict(FEW)",
    "model: loaded as another": "TextRegressor.load('tuned')",
    "folder: with a run": "TextClassifier('model', out='tuned').fit(FEW, XY)",
    "folder: without a run": "load('nowhere')",
    "folder: nearly a model in the package": "load('englsh')",
    "corpus: a list without a file": "pretrain([])",
    "corpus: a set of texts": "pretrain({'A fine film.', 'A dull one.'})",
    "corpus: nothing to resume": "pretrain(out='nowhere', resume=True)",
    "corpus: a number without a name": "pretrain(FEW, 20)",
    "task: none": "finetune()",
    "data: a table in memory": "finetune('classify', {'text': FEW, 'label': XY}, 'model')",
    "folder: None": "load(None)",
    "stream: one string": "next(TextEncoder('model').stream('films.csv'))",
    "encode: a second text": "load('model').encode('the film', 'dull')",
    "encode: nothing": "load('model').encode('')",
    "encode: a name of transformers": "load('model').encode('the film')['last_hidden_state']",
    "second: the column to learn": "TextClassifier('model', second='label').fit({'text': FEW, 'label': XY})",
    "y: the name of a column without a table": "TextClassifier('model').fit(FEW, 'good')",
    "dev: no share": "TextClassifier('model', split_dev=None).fit(FEW, XY)",
    "keyword: of a tokenizer": "Tokenizer.from_pretrained('model', do_lower_case=False)",
    "keyword: of Bert, from transformers": "Bert.from_pretrained('model', torch_dtype='float32')",
    "fill_mask: None": "load('model').fill_mask(None)",
    "name: none of the package": "minibert.TextClassifer",
    "truncation: True": "Tokenizer.from_pretrained('model')('the film', truncation=True, max_length=8)",
    "fit: an option": "TextClassifier('model').fit(FEW, XY, epochs=3)",
    "fit: an option by another name": "TextClassifier('model').fit(FEW, XY, num_train_epochs=3)",
    "fit: data to validate on, from Keras": "TextClassifier('model').fit(FEW, XY, validation_data=(FEW, XY))",
    "fit: weights of rows": "TextClassifier('model').fit(FEW, XY, sample_weight=[1] * 12)",
    "fit: misspelt": "TextClassifier('model').fit(FEW, XY, devs=(FEW, XY))",
    "predict: a batch size": "load('tuned').predict(FEW, batch_size=8)",
    "transform: an option": "TextEncoder('model').transform(FEW, normalize=True)",
    "texts: a generator that was read": "TextClassifier('model').fit(iter([]), XY)",
    "class_weights: a word for a weight": "TextClassifier('model', class_weights={'x': 'a'}).fit(FEW, XY)",
    "class_weights: a list": "TextClassifier('model', class_weights=[1, 2]).fit(FEW, XY)",
    "sampling: not balanced": "TextClassifier('model', sampling='even').fit(FEW, XY)",
    "layers: too high": "load('model').encode('the film', layers=12)",
    "layers: a word": "load('model').encode('the film', layers='last')",
    "max_length: more than the positions": "TextEncoder('model', max_length=4096).transform(FEW)",
    "labels: a matrix of one column": "TextClassifier('model').fit(FEW, [[0], [1]] * 6)",
    "labels: a matrix for a regressor": "TextRegressor('model').fit(FEW, [[0, 1], [1, 0]] * 6)",
    "labels: a fraction among several": "MultilabelClassifier('model').fit(FEW, [['a'], ['b', 0.5]] * 6)",
    "dev: a share": "TextClassifier('model').fit(FEW, XY, dev=0.2)",
    "answers: an empty paragraph": "QuestionAnswerer('model').fit([('who?', '')], ['a'])",
    "texts: an empty second one": "TextClassifier('model').fit([('the film', '')] * 12, XY)",
    "encode: no text": "load('model').encode([])",
    "encode: a number in a pair": "load('model').encode([('the film', 3)])",
    "corpus: a number": "pretrain(3)",
    "corpus: a list of numbers": "pretrain([3, 4])",
    "corpus: an empty name": "pretrain('', show=False)",
    "corpus: one text": "pretrain('hello world')",
    "class: Tokenizer of a folder": "Tokenizer('model')",
    "class: Bert of a folder": "Bert('model')",
    "class: Run of a folder": "Run('pretrained')",
    "attribute: last_hidden_state": "load('model').encode('the film').last_hidden_state",
    "attribute: pooler_output": "load('model').encode('the film').pooler_output",
    "attribute: encode of an encoder": "TextEncoder('model').encode(FEW)",
    "attribute: to a device": "load('model').to('cuda')",
    "attribute: predict": "load('model').predict(FEW)",
    "attribute: none of any library": "load('model').xyzzy",
    "call: a model": "load('model')(FEW)",
    "compare: two runs as arguments": "compare('pretrained', 'tuned')",
    "compare: one run": "compare('pretrained')",
    "show: a number": "show(3)",
}


def cases() -> dict[str, Callable[[], str]]:
    """Return, by what is wrong and the line of code, what gives the error that the line ends with."""
    texts, _ = zip(*reviews(12, 1), strict=True)
    names = {name: getattr(minibert, name) for name in minibert.__all__}
    names |= {"minibert": minibert}
    names |= {"FEW": list(texts), "XY": ["x", "y"] * 6, "WORDS": [text.split() for text in texts]}
    return {f"{what}\n>>> {code}": partial(_error_of, code, names) for what, code in MISUSES.items()}


def _error_of(code: str, names: dict[str, Any]) -> str:
    """Return the type and the sentence of the error."""
    try:
        eval(code, names)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
