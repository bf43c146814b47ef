"""Prepare a corpus for pre-training: vocabulary, token shards, and the split by document."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.base.files import write_atomically
from minibert.base.model_names import (
    CONFIG_FILE,
    TF_CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    config_in,
    folder_of,
    no_such_model,
)
from minibert.base.terminal import counted
from minibert.data.corpus import SentenceStream, embedded_corpus, empty_corpus, find_files, layouts_text
from minibert.data.documents import format_of, text_of
from minibert.data.instances import InstanceOptions, Instances, share_in_pairs, split_documents
from minibert.data.marks import MarkCounts
from minibert.data.shards.joined import link_shards, open_shards, vocabulary_of
from minibert.data.shards.store import TokenShards, write_shards
from minibert.hub.loading import read_config
from minibert.pretraining.options import POSITIONS, PretrainOptions
from minibert.tokenizer import BasicTokenizer, Tokenizer, learn_vocab, text_rules
from minibert.tokenizer.counting import CountedFiles, count_files
from minibert.tokenizer.normalize import MAX_CHARS
from minibert.tokenizer.unicode import IDEOGRAPH, flags
from minibert.tokenizer.wordpiece import can_be_special
from minibert.training.runlog import bar, info_if

HELD_OUT_SEED = 20181011  # seeds every held-out masking, whatever the run's seed: the day the paper came out
MARKS_BYTES = 1 << 16  # marks are counted in the first bytes of each block of text
IDEOGRAPH_TOKENS = 1 << 20  # ideographs are counted in the first tokens of a text
MANY_IDEOGRAPHS = 0.05  # warn where a greater share of the pieces are ideographs
LEAST_IN_PAIRS = 0.2  # next sentences are learnt where this share of a text is in documents of two or more
UPDATE_LINES = 2000  # between two updates of a progress bar
DIFFERENT_LINES = 1 << 18  # only repetitions of the first different lines are counted, in some 30 MB
LEAST_LINES = 1000  # in a shorter text, repeated lines are not worth a warning
MUCH_REPEATED = 0.05  # share of the characters; it is 2% in Wikipedia, 0.4% in novels and reviews
MUCH_SHARED = 0.01  # warn where a greater share of the held-out text is training text as well

TEXTS = "texts.jsonl"  # texts given in memory, in the run folder until its shards are made
IN_MEMORY = " in memory, SHA-256 "  # marks the name that replaces names of files in the options of such a run


def name_of_texts(texts: Sequence[str]) -> str:
    """Return the name that texts in memory have in the options of a run: their count and their hash.

    Parameters
    ----------
    texts : sequence of str
        The documents; in another order they have another name.

    Returns
    -------
    str
        For example "3 texts in memory, SHA-256 0123456789abcdef".
    """
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return f"{counted(len(texts), 'text')}{IN_MEMORY}{digest.hexdigest()[:16]}"


def keep_texts(texts: Iterable[str], run: Path) -> None:
    """Write texts in memory into a run folder; the run reads them there, after Ctrl-C as well.

    Parameters
    ----------
    texts : iterable of str
        The documents; each becomes a line of `texts.jsonl`.
    run : Path
        The run folder.
    """

    def write(temporary: Path) -> None:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)

    write_atomically(run / TEXTS, write)


def _source(options: PretrainOptions, run: Path) -> tuple[list[Path], str]:
    """Return the files of a corpus, and the column of their text if they are JSON lines or tables."""
    if not (len(options.corpus) == 1 and IN_MEMORY in options.corpus[0]):
        return find_files(list(options.corpus) or embedded_corpus()), options.column
    if not (run / TEXTS).exists():
        advice = "give the same texts again, or choose another folder for a new run."
        raise InputError(f"The run in '{run}' was on {options.corpus[0]}, which are not there; {advice}")
    return [run / TEXTS], "text"


@dataclass(frozen=True)
class Text:
    """A corpus from which training and held-out instances can be drawn; `prepare_text` makes it.

    Attributes
    ----------
    tokenizer : Tokenizer
    shards : TokenShards
        Every document as ids.
    train_ids : (n,) int64
        Indices of the training documents.
    held_out_ids : (m,) int64
        Indices of the held-out documents.
    repeated : float
        Share of the text in repeated lines, or a lower bound of it; 0 if the shards already existed.
    next_sentence : bool
        Whether next sentences are learnt from it.
    """

    tokenizer: Tokenizer
    shards: TokenShards
    train_ids: np.ndarray
    held_out_ids: np.ndarray
    repeated: float = 0.0
    next_sentence: bool = True

    def holds_out_least(self, share: float) -> bool:
        """Return whether more documents are held out than a share says, as fewer would not do.

        Parameters
        ----------
        share : float
            The share to hold out, `held_out` of the options.
        """
        asked = round(share * (len(self.train_ids) + len(self.held_out_ids)))
        return len(self.held_out_ids) > asked

    def training(self, options: PretrainOptions, seq_length: int) -> Instances:
        """Return the instances of a stage of training.

        Parameters
        ----------
        options : PretrainOptions
            Options of the run: how instances are made, and the seed.
        seq_length : int
            Tokens in each sequence of the stage.
        """
        instance_options = options.instance_options(seq_length)
        return Instances(self.shards, self.train_ids, self.tokenizer, instance_options, options.seed)

    def held_out(self, seq_length: int, next_sentence: bool = True, left_to_right: bool = False) -> Instances:
        """Return instances of the held-out documents with standard masks, whatever masks the run trains with.

        If no held-out document has two sentences they are single spans, without next sentences.

        Parameters
        ----------
        seq_length : int
            Tokens in a sequence.
        next_sentence : bool, default True
            Whether to make pairs, if the text has any.
        left_to_right : bool, default False
            Predict every next token instead of masked ones.
        """
        next_sentence = next_sentence and share_in_pairs(self.shards, self.held_out_ids) > 0
        standard = InstanceOptions(
            seq_length=seq_length, next_sentence=next_sentence, left_to_right=left_to_right
        )
        return Instances(self.shards, self.held_out_ids, self.tokenizer, standard, HELD_OUT_SEED)

    # -> (V,)
    def log_unigram(self) -> np.ndarray:
        """Compute the log-frequency of every piece in the training documents, with one added to each count.

        With it as output bias, the model begins with the best guess without context, the unigram floor.

        Returns
        -------
        (V,) float64
            In nats, all at most 0.
        """
        counts = 1 + self.piece_counts(self.train_ids)
        return np.log(counts / counts.sum())

    # -> (V,) int64
    def piece_counts(self, documents: Iterable[int] | None = None) -> np.ndarray:
        """Return how often every piece occurs in some or all of the documents.

        Parameters
        ----------
        documents : iterable of int, optional
            Indices of the documents; all of them by default.

        Returns
        -------
        (V,) int64
        """
        counts = np.zeros(self.tokenizer.vocab_size, np.int64)
        if documents is None:
            documents = range(self.shards.n_documents)
        for index in documents:
            tokens, _ = self.shards.document(int(index))
            np.add.at(counts, tokens, 1)  # bincount would walk the whole vocabulary for each document
        return counts


def prepare_text(
    options: PretrainOptions,
    run: Path,
    show: bool = True,
    has_begun: bool = False,
) -> Text:
    """Prepare vocabulary, shards and split of a run, reusing what its folder already has.

    Tokenizer and `shards/` are written into the folder. If `minibert data` made the shards, `shards/` only
    says where they are.

    Parameters
    ----------
    options : PretrainOptions
        Options of the run.
    run : Path
        Folder of the run.
    show : bool, default True
        Log progress.
    has_begun : bool, default False
        Whether a run is resumed that has taken steps. It goes on as it began: it learns next sentences if its
        options say so, and its text, which may be large, is not searched for repeated documents again.

    Returns
    -------
    Text

    Raises
    ------
    InputError
        When text, vocabulary or model can't be used, or there are too few documents.
    """
    tokenizer = _vocabulary(options, run, show)
    repeated: list[float] = []
    if options.shards:
        shards = open_shards(options.shards, tokenizer)
        link_shards(run / "shards", shards)
    elif not (run / "shards").exists():
        layout = options.layout if options.corpus else "sentences"
        files, column = _source(options, run)
        stream = SentenceStream(files, layout, column)
        marks = MarkCounts(tokenizer.basic_tokenizer)
        lines = watched(stream, "writing shards", show, repeated.append, marks)
        shards = write_shards(lines, tokenizer, run / "shards")
        if stream.layouts_read and files[0].name != TEXTS:
            documents = counted(shards.n_documents, "document")
            info_if(show)(f"{documents}. {layouts_text(stream.layouts_read)}")
    else:
        shards = open_shards(run / "shards", tokenizer)
    if options.whole_word_mask:
        warn_of_lone_ideographs(shards, tokenizer)
    (run / TEXTS).unlink(missing_ok=True)  # the shards have these texts now
    pairs = options.pairs and (has_begun or _can_pair_or_warn(options, shards))
    parts = split_documents(shards.n_documents, options.held_out, pairs)
    if not has_begun:
        _warn_of_shared_documents(shards, *parts)
    return Text(tokenizer, shards, *parts, sum(repeated), pairs)


def _can_pair_or_warn(options: PretrainOptions, shards: TokenShards) -> bool:
    """Return whether next sentences can be learnt from a text; warn, with the reason, if they can't."""
    advice = "lines that follow one another need blank lines only between documents, or the layout continuous"
    if any(IN_MEMORY in name for name in options.corpus):
        advice = "where the texts follow one another, layout='continuous' joins them"
    elif any(format_of(Path(name)) for name in options.corpus):
        advice = "where the rows follow one another, the layout continuous joins them"
    share = share_in_pairs(shards)
    if share == 0:
        reason = "no document has two sentences"
    elif share < LEAST_IN_PAIRS:
        reason = f"only {share:.1%} of the text is in documents of two sentences or more"
    else:
        train, _ = split_documents(shards.n_documents, options.held_out, True)
        if share_in_pairs(shards, train) > 0:
            return True
        reason = "no training document has two sentences, as those that have are held out"
        advice = "shuffle the documents, or change `held_out`"
    warn(f"Next-sentence prediction is not trained: {reason}; {advice}.")
    return False


# train_ids (n,)  held_out_ids (m,)
def _warn_of_shared_documents(shards: TokenShards, train_ids: np.ndarray, held_out_ids: np.ndarray) -> None:
    """Warn if much of the held-out text is in documents that equal a training document."""
    lengths = shards.document_lengths
    begins = shards.token_ends - lengths

    def digest(index: int) -> bytes:
        tokens = shards.tokens[begins[index] : shards.token_ends[index]]
        return hashlib.blake2b(tokens.tobytes(), digest_size=8).digest()

    same_length = np.isin(lengths[train_ids], lengths[held_out_ids])
    trained = set(map(digest, train_ids[same_length]))
    shared = [index for index in held_out_ids if digest(index) in trained]
    share = lengths[shared].sum() / lengths[held_out_ids].sum()
    if share > MUCH_SHARED:
        what = f"{share:.0%} of the held-out text is in documents that are trained on as well"
        counts = f"{len(shared):,} of {len(held_out_ids):,} held-out documents"
        why = "so that the held-out loss is lower than on new text"
        warn(f"{what} ({counts}), {why}; give every document of the corpus once.")


def _vocabulary(options: PretrainOptions, run: Path, show: bool) -> Tokenizer:
    """Return the tokenizer of a run: that of its folder, shards, vocabulary file or model, or a new one."""
    # tokenizer_config.json is written last: if it is there, the vocabulary is complete.
    if (run / TOKENIZER_CONFIG_FILE).exists():
        return Tokenizer.from_pretrained(run)
    positions = max(options.max_positions or POSITIONS, options.longest)
    if options.model:
        positions = configuration(options.model).get("max_position_embeddings", positions)
        positions = options.extend_positions or positions
    if options.shards:
        tokenizer = vocabulary_of(options.shards)
        if options.model:
            open_shards(options.shards, Tokenizer.from_pretrained(options.model))
    elif source := options.vocab or options.model:
        rules = text_rules(not options.lower_case, options.keep_accents, options.segmented)
        tokenizer = Tokenizer.from_pretrained(source, **rules)
    else:
        files, column = _source(options, run)
        rules = text_rules(False, options.keep_accents, options.segmented)
        tokenizer = learn_vocabulary(files, options.vocab_size, options.lower_case, show, column, **rules)
    tokenizer.save_pretrained(run, model_max_length=positions)
    return tokenizer


def configuration(folder: str) -> dict[str, Any]:
    """Return the configuration of a trained BERT to start from; it is checked when weights are loaded.

    Parameters
    ----------
    folder : str
        A folder, or another name of a model that `folder_of` accepts.

    Returns
    -------
    dict
        The fields of its `config.json`, or of `bert_config.json` in a TensorFlow folder.

    Raises
    ------
    InputError
        When there is no such model, or it has neither of the two files.
    """
    place = folder_of(folder)
    path = config_in(place)
    if path.is_file():
        return read_config(path)
    if not place.is_dir():
        raise no_such_model(folder)
    names = f"{CONFIG_FILE} or {TF_CONFIG_FILE}"
    message = f"model={folder!r} has no {names}; give a run folder or another BERT's."
    raise InputError(message, model=folder)


def require_segments(options: PretrainOptions) -> None:
    """Check, before any text is read, that a model to start from can read pairs if the options ask for them.

    Parameters
    ----------
    options : PretrainOptions
        Options of the run; nothing is checked if they name no `model` or ask for no pairs.

    Raises
    ------
    InputError
        When `model` has only one segment (type_vocab_size=1), and the options ask for next sentences.
    """
    if not options.model or not options.pairs:
        return
    if configuration(options.model).get("type_vocab_size", 2) == 1:
        what = f"model={options.model!r} knows one segment only (type_vocab_size=1)"
        message = f"{what}, and next-sentence prediction needs two; set next_sentence=False."
        raise InputError(message, model=options.model, next_sentence=False)


def learn_vocabulary(
    corpus: Iterable[str | Path],
    vocab_size: int = PretrainOptions.vocab_size,
    lower_case: bool = PretrainOptions.lower_case,
    show: bool = True,
    column: str = "text",
    **rules: Any,
) -> Tokenizer:
    """Learn the vocabulary of a run from its corpus.

    Parameters
    ----------
    corpus : iterable of str or Path
        Files, folders or globs; if empty, the books in the package.
    vocab_size : int, default 8192
        Number of pieces to learn.
    lower_case : bool, default True
        Lower-case the text and strip accents.
    show : bool, default True
        Show progress bars on the error stream.
    column : str, default "text"
        Key of JSON lines, or column of tables, that has the text.
    **rules
        Further rules of `BasicTokenizer`.

    Returns
    -------
    Tokenizer
    """
    basic = BasicTokenizer(lower_case, **rules)
    counted = count_corpus(corpus, basic, show, column, strict=True)  # as strict as writing shards is
    return learn_tokenizer(counted.words, vocab_size, lower_case, show, rules)


def count_corpus(
    corpus: Iterable[str | Path],
    basic: BasicTokenizer,
    show: bool = True,
    column: str = "text",
    marks: MarkCounts | None = None,
    **more: Any,
) -> CountedFiles:
    """Count the words of a corpus, or those of the books in the package if none is named.

    Parameters
    ----------
    corpus : iterable of str or Path
        Files, folders or globs.
    basic : BasicTokenizer
        The rules by which text is cut into words.
    show : bool, default True
        Show a progress bar on the error stream.
    column : str, default "text"
        Key of JSON lines, or column of tables, that has the text.
    marks : MarkCounts, optional
        Counts the marks that are stripped, in the beginning of each block that is read.
    **more
        Further arguments of `count_files`.

    Returns
    -------
    CountedFiles

    Raises
    ------
    InputError
        When the text has no word to count, or all of it is held out.
    """

    def read(file: Path, size: int, progress: Callable[[int], None]) -> Iterator[bytes]:
        for block in text_of(file, size, progress, column=column):
            if marks is not None:
                marks.add(block[:MARKS_BYTES].decode("utf-8", "ignore"))
            yield block

    files = find_files(list(corpus) or embedded_corpus())
    with bar(show, desc="counting words", unit="B", unit_scale=True) as shown:

        def progress(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        counted = count_files(files, basic, progress=progress, read=read, **more)
    if not len(counted.words):
        if len(counted.held_out):
            raise InputError("Every line of the text was held out; give more text, or hold out 0.")
        raise empty_corpus(files, f"text, or only words of more than {MAX_CHARS[basic.compat]} characters,")
    return counted


def learn_tokenizer(
    words: Mapping[str, int],
    vocab_size: int,
    lower_case: bool = True,
    show: bool = True,
    rules: Mapping[str, Any] | None = None,
    **learning: Any,
) -> Tokenizer:
    """Learn a vocabulary from words and their counts, and return its tokenizer.

    Parameters
    ----------
    words : mapping of str to int
        Words, cut by the rules of the tokenizer, with their counts.
    vocab_size : int
        Number of pieces to learn.
    lower_case : bool, default True
        Lower-case the text and strip accents.
    show : bool, default True
        Show a progress bar on the error stream.
    rules : mapping, optional
        Further rules of `BasicTokenizer`.
    **learning
        Further arguments of `learn_vocab`; some of its `user_tokens` become special: see `special_tokens`.

    Returns
    -------
    Tokenizer
    """
    rules = dict(rules or {})
    special = special_tokens(learning.get("user_tokens", ()), lower_case, rules)
    desc = "learning pieces"
    if "objective" in learning:
        desc += f" by {learning['objective']}"
    with bar(show, total=vocab_size, desc=desc, unit="piece") as shown:

        def progress(n: int, _: int) -> None:
            shown.update(n - shown.n)

        pieces = learn_vocab(words, vocab_size, progress=progress, **learning)
    core = learning.get("core", "auto")
    return Tokenizer(pieces, lower_case, **rules, additional_special_tokens=special, core=core)


def special_tokens(
    user_tokens: Iterable[str], lower_case: bool, rules: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the user's tokens that must be special, as cutting a text into words would never yield them.

    Parameters
    ----------
    user_tokens : iterable of str
        Pieces that the user wants in the vocabulary.
    lower_case : bool
        Whether the tokenizer lower-cases text.
    rules : mapping, optional
        Further rules of `BasicTokenizer`.

    Returns
    -------
    list of str

    Raises
    ------
    InputError
        When a token would never be found in a text, and can't be special either.
    """
    special = []
    for token in user_tokens:
        word = token.removeprefix("##")
        words = BasicTokenizer(lower_case, **(rules or {})).tokenize(word)
        if words == [word]:
            continue
        if word != token or not can_be_special(token):
            advice = "spell it as one such word, or like '[ENTITY]', with a punctuation mark first."
            if BasicTokenizer(False).tokenize(word) == [word]:
                advice = f"learn with lower_case=False, {advice}"
            raise InputError(
                f"user_token={token!r} would never be found, as {word!r} in a text becomes "
                f"{' '.join(words)!r}; {advice}"
            )
        special.append(token)
    return special


def warn_of_lone_ideographs(shards: TokenShards, tokenizer: Tokenizer) -> None:
    """Warn that each ideograph counts as a whole word, if ideographs are a considerable share of the text.

    Parameters
    ----------
    shards : TokenShards
        The text; only its beginning is examined.
    tokenizer : Tokenizer
        Tokenizer of the shards.
    """
    if not tokenizer.basic_tokenizer.tokenize_chinese_chars:
        return

    def is_ideograph(piece: str) -> bool:
        return len(piece) == 1 and bool(flags(ord(piece)) & IDEOGRAPH)

    is_lone = np.array([is_ideograph(piece) for piece in tokenizer.vocab])
    share = float(is_lone[shards.tokens[:IDEOGRAPH_TOKENS]].mean())
    if share > MANY_IDEOGRAPHS:
        what = f"{share:.0%} of the pieces are ideographs, each of which is a word"
        advice = "if spaces separate the words of the text, use segmented=True"
        warn(f"{what}, so that whole-word masking hides single ideographs; {advice}.")


def repeated_share(shards: TokenShards) -> tuple[int, float]:
    """Measure how much of a text is in sentences that were there before, whether or not it was just written.

    Parameters
    ----------
    shards : TokenShards
        The text; documents are read up to `DIFFERENT_LINES` sentences.

    Returns
    -------
    sentences : int
        How many were read.
    share : float
        Share of their tokens that is in repeated ones.
    """
    seen: set[bytes] = set()
    n_sentences = n_tokens = repeated = 0
    for index in range(shards.n_documents):
        tokens, ends = shards.document(index)
        for sentence in np.split(tokens, ends[:-1]):
            digest = hashlib.blake2b(sentence.tobytes(), digest_size=8).digest()
            if digest in seen:
                repeated += len(sentence)
            seen.add(digest)
        n_sentences += len(ends)
        n_tokens += len(tokens)
        if n_sentences >= DIFFERENT_LINES:
            break
    return n_sentences, repeated / max(1, n_tokens)


def watched(
    stream: SentenceStream,
    what: str,
    show: bool,
    on_repeated: Callable[[float], object] = float,
    marks: MarkCounts | None = None,
) -> Iterator[str | None]:
    """Yield the same sentences, with a progress bar over the bytes of the corpus; warn of many duplicates.

    Parameters
    ----------
    stream : SentenceStream
        Sentences, and None between documents.
    what : str
        Name of the work, shown before the progress bar.
    show : bool
        Whether to show a progress bar on the error stream.
    on_repeated : callable
        Called once, at the end, with the share of the text in repeated lines; in a long text with a lower
        bound of it.
    marks : MarkCounts, optional
        Counts the marks that the tokenizer strips, and warns of them at the end.

    Yields
    ------
    str or None
    """
    times: dict[int, int] = {}  # by the hash of a line
    number = characters = repeated = most = 0
    example = ""
    with bar(show, total=stream.bytes_total, desc=what, unit="B", unit_scale=True) as shown:
        for number, sentence in enumerate(stream):
            if number % UPDATE_LINES == 0:
                shown.update(stream.bytes_read - shown.n)
            yield sentence
            characters += len(sentence or "")
            if sentence and marks is not None:
                marks.add(sentence)
            if not sentence:
                continue
            key = hash(sentence)
            if key in times or len(times) < DIFFERENT_LINES:
                count = times.get(key, 0) + 1
                times[key] = count
                if count > 1:
                    repeated += len(sentence)
                if count > most:
                    most = count
                    example = sentence
    if number >= LEAST_LINES and repeated > MUCH_REPEATED * characters:
        percent = math.floor(100 * repeated / characters)
        share = f"At least {percent}% of the text is repeated lines"
        warn(f"{share}, one of them {most:,} times: {example[:60]!r}. Remove them: they teach nothing new.")
    if marks is not None:
        marks.warn()
    on_repeated(repeated / max(1, characters))
