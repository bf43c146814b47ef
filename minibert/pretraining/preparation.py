"""From a corpus to what instances are drawn from: vocabulary, token shards, split by document."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minibert.data.corpus import SentenceStream, embedded_corpus, empty_corpus, find_files, layouts_text
from minibert.data.documents import text_of
from minibert.data.instances import InstanceOptions, Instances, split_documents
from minibert.data.shards.joined import link_shards, open_shards, vocabulary_of
from minibert.data.shards.store import TokenShards, write_shards
from minibert.errors import InputError, warn
from minibert.hub.loading import read_config
from minibert.model_names import folder_of, no_such_model
from minibert.pretraining.options import PretrainOptions
from minibert.terminal import counted
from minibert.tokenizer import CASED, BasicTokenizer, Tokenizer, learn_vocab
from minibert.tokenizer.counting import CountedFiles, count_files
from minibert.tokenizer.normalize import MAX_CHARS
from minibert.tokenizer.wordpiece import can_be_special
from minibert.training.runlog import bar, say

HELD_OUT_SEED = 20181011  # of every held-out masking, whatever the run's seed: the day the paper came out
UPDATE_LINES = 2000  # between two updates of a progress bar
DIFFERENT_LINES = 1 << 18  # the first ones, whose repetitions are counted in some 30 MB
FEW_LINES, MUCH = 1000, 0.05  # to warn of repetitions; Wikipedia's are 2%, those of novels and reviews 0.4%


@dataclass(frozen=True)
class Text:
    """A corpus ready to be drawn from."""

    tokenizer: Tokenizer
    shards: TokenShards  # every document as ids
    train_ids: np.ndarray  # numbers of the documents to learn from
    held_out_ids: np.ndarray  # and of those to be measured on
    repeated: float = 0.0  # share of lines that stood before, at least; 0 where the text was not read now

    def training(self, options: PretrainOptions, seq_length: int) -> Instances:
        """Return the instances of a stage of training."""
        made = options.instance_options(seq_length)
        return Instances(self.shards, self.train_ids, self.tokenizer, made, options.seed)

    def held_out(self, seq_length: int, next_sentence: bool = True, left_to_right: bool = False) -> Instances:
        """Return standard instances of the held-out documents, however the run masks in training."""
        how = InstanceOptions(seq_length=seq_length, next_sentence=next_sentence, left_to_right=left_to_right)
        return Instances(self.shards, self.held_out_ids, self.tokenizer, how, HELD_OUT_SEED)

    # -> (V,)
    def log_unigram(self) -> np.ndarray:
        """Compute the log-frequency of every piece in the training documents, each counted once more.

        As the output bias it is the best guess without context: the model begins at the unigram floor.
        """
        counts = 1 + self.piece_counts(self.train_ids)
        return np.log(counts / counts.sum())

    # -> (V,) int64
    def piece_counts(self, documents: Iterable[int] | None = None) -> np.ndarray:
        """Return how often every piece occurs in some of the documents, or in all of them."""
        counts = np.zeros(self.tokenizer.vocab_size, np.int64)
        for number in range(self.shards.n_documents) if documents is None else documents:
            tokens, _ = self.shards.document(int(number))
            np.add.at(counts, tokens, 1)  # bincount would take as long as there are pieces for each document
        return counts


def prepare_text(options: PretrainOptions, run: Path, show: bool = True) -> Text:
    """Prepare vocabulary, shards and split of a run; what its folder already has is taken from there.

    Tokenizer and `shards/` are written into it; of shards by `minibert data` only where they are.
    """
    tokenizer, repeated = _vocabulary(options, run, show), list[float]()
    if options.shards:
        shards = open_shards(options.shards, tokenizer)
        link_shards(run / "shards", shards)
    elif not (run / "shards").exists():
        layout = options.layout if options.corpus else "sentences"
        stream = SentenceStream(options.corpus or embedded_corpus(), layout, options.column)
        lines = watched(stream, "writing shards", show, repeated.append)
        shards = write_shards(lines, tokenizer, run / "shards")
        if show and stream.found:
            say(f"{counted(shards.n_documents, 'document')}. {layouts_text(stream.found)}")
    else:
        shards = open_shards(run / "shards", tokenizer)
    parts = split_documents(shards.n_documents, options.held_out, options.pairs)
    return Text(tokenizer, shards, *parts, sum(repeated))


def _vocabulary(options: PretrainOptions, run: Path, show: bool) -> Tokenizer:
    # tokenizer_config.json is written last: where it stands, the vocabulary is complete.
    if (run / "tokenizer_config.json").exists():
        return Tokenizer.from_pretrained(run)
    positions = max(options.max_positions, options.longest)
    if options.model:
        positions = _configuration(options.model).get("max_position_embeddings", positions)
        positions = options.extend_positions or positions
    if options.shards:
        tokenizer = vocabulary_of(options.shards)
        if options.model:
            open_shards(options.shards, Tokenizer.from_pretrained(options.model))
    elif source := options.vocab or options.model:
        tokenizer = Tokenizer.from_pretrained(source, **({} if options.lower_case else CASED))
    else:
        how = (options.vocab_size, options.lower_case, show, options.column)
        tokenizer = learn_vocabulary(options.corpus, *how)
    tokenizer.save_pretrained(run, model_max_length=positions)
    return tokenizer


def _configuration(folder: str) -> dict[str, Any]:
    """Return the configuration of a trained BERT to start from; it is checked when weights are loaded."""
    place = folder_of(folder)
    for name in ("config.json", "bert_config.json"):  # the second in TensorFlow's folders
        if (path := place / name).is_file():
            return read_config(path)
    if not place.is_dir():
        raise no_such_model(folder)
    message = "$model has no config.json or bert_config.json; give a run folder or another BERT's."
    raise InputError(message, model=folder)


def learn_vocabulary(
    corpus: Iterable[str | Path],
    vocab_size: int = PretrainOptions.vocab_size,
    lower_case: bool = PretrainOptions.lower_case,
    show: bool = True,
    column: str = "text",
) -> Tokenizer:
    """Learn the vocabulary of a run from its corpus."""
    counted = count_corpus(corpus, BasicTokenizer(lower_case), show, column, strict=True)  # as the shards are
    return learn_tokenizer(counted.words, vocab_size, lower_case, show)


def count_corpus(
    corpus: Iterable[str | Path], basic: BasicTokenizer, show: bool = True, column: str = "text", **more: Any
) -> CountedFiles:
    """Count the words of a corpus, of the embedded books when none is named; `more` is for `count_files`."""
    files = find_files(list(corpus) or embedded_corpus())
    with bar(show, desc="counting words", unit="B", unit_scale=True) as shown:

        def progress(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        read = partial(text_of, column=column)
        counted = count_files(files, basic, progress=progress, read=read, **more)
    if not len(counted.words):
        if len(counted.held_out):
            raise InputError("Every line of the text fell to what is held out; give more, or hold out 0.")
        raise empty_corpus(files, f"text, or only words of more than {MAX_CHARS[basic.compat]} characters,")
    return counted


def learn_tokenizer(
    words: Mapping[str, int], vocab_size: int, lower_case: bool = True, show: bool = True, **learning: Any
) -> Tokenizer:
    """Learn a vocabulary from words and their counts, and return its tokenizer.

    `learning` is for `learn_vocab`; of its `user_tokens` some become special, as `special_tokens` says.
    """
    special = special_tokens(learning.get("user_tokens", ()), lower_case)
    desc = "learning pieces" + (f" by {learning['objective']}" if "objective" in learning else "")
    with bar(show, total=vocab_size, desc=desc, unit="piece") as shown:
        pieces = learn_vocab(words, vocab_size, progress=lambda n, _: shown.update(n - shown.n), **learning)
    return Tokenizer(pieces, lower_case, additional_special_tokens=special, core=learning.get("core", "auto"))


def special_tokens(user_tokens: Iterable[str], lower_case: bool) -> list[str]:
    """Return those of the user's tokens that must be special, as no word of a text would be like them."""
    special = []
    for token in user_tokens:
        word = token.removeprefix("##")
        found = BasicTokenizer(lower_case).tokenize(word)
        if found == [word]:
            continue
        if word != token or not can_be_special(token):
            cased = BasicTokenizer(False).tokenize(word) == [word]
            raise InputError(
                f"--user-token {token!r} would never be found, as {word!r} in a text becomes "
                f"{' '.join(found)!r}; {'learn with --cased, ' * cased}spell it as one such word, "
                "or like '[ENTITY]', in ASCII with a punctuation mark first."
            )
        special.append(token)
    return special


def watched(
    stream: SentenceStream, what: str, show: bool, tell: Callable[[float], object] = float
) -> Iterator[str | None]:
    """Yield the same sentences, with a progress bar over the bytes of the corpus; warn of many duplicates.

    At the end `tell` is given the share of the text that are lines that stood before, or less in a long one.
    """
    times: dict[int, int] = {}  # by hash
    number = characters = repeated = most = 0
    example = ""
    with bar(show, total=stream.bytes_total, desc=what, unit="B", unit_scale=True) as shown:
        for number, sentence in enumerate(stream):
            if number % UPDATE_LINES == 0:
                shown.update(stream.bytes_read - shown.n)
            yield sentence
            characters += len(sentence or "")
            if sentence and ((key := hash(sentence)) in times or len(times) < DIFFERENT_LINES):
                times[key] = count = times.get(key, 0) + 1
                repeated += len(sentence) * (count > 1)
                if count > most:
                    most, example = count, sentence
    if number >= FEW_LINES and repeated > MUCH * characters:
        share = f"At least {math.floor(100 * repeated / characters)}% of the text is repeated lines"
        warn(f"{share}, one of them {most:,} times: {example[:60]!r}. Remove them: they teach nothing new.")
    tell(repeated / max(1, characters))
