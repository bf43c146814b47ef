"""What the options of transformers, scikit-learn, Keras and other libraries are called here."""

import functools
import inspect
import os
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

from minibert.core.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")
Kind = TypeVar("Kind")


class Foreign(NamedTuple):
    """What an option of another library is called here."""

    ours: tuple[str, ...] = ()  # names of options; the first that the function has is meant
    note: str = ""  # what else differs, as a sentence


_HALF = Foreign(("dtype",), 'Half precision is dtype="bfloat16".')
_BEST = Foreign((), "The best epoch on dev is kept in any case; leave it out.")
_PATIENCE = Foreign(("patience",), "It is a number of epochs.")
_RATE = Foreign(("learning_rates", "learning_rate"))
_EPOCHS = Foreign(("epochs", "minutes", "steps"))
_BATCH = Foreign(("batch_size",))
_LENGTH = Foreign(("max_length", "seq_length"))
_OUT = Foreign(("out",))
_MODEL = Foreign(("model",))
_SEED = Foreign(("seed", "random_state"))
_SHOW = Foreign(("show", "verbose"))
_SPLIT = Foreign(("split_dev", "held_out"))
_THREADS = Foreign(("threads",))
_WARMUP = Foreign(("warmup",), "It is a share of the steps, such as 0.1.")
_MEASURED = Foreign(("evaluations",), "Fine-tuning evaluates the model after every epoch.")

# Sorted by subject; the names are in lower case, with _ between words.
FOREIGN_NAMES = {
    # rate and length of a run
    **dict.fromkeys(("lr", "learning_rate", "learning_rates", "rate", "max_lr", "alpha", "eta"), _RATE),
    **dict.fromkeys(("epochs", "num_train_epochs", "n_epochs", "num_epochs", "nb_epoch"), _EPOCHS),
    **dict.fromkeys(("max_epochs", "n_iter"), _EPOCHS),
    "max_steps": Foreign(("steps",)),
    **dict.fromkeys(
        ("steps", "num_steps", "n_steps", "total_steps", "max_iter"), Foreign(("max_steps", "steps"))
    ),
    **dict.fromkeys(("warmup_ratio", "warmup_steps", "warmup_proportion", "num_warmup_steps"), _WARMUP),
    **dict.fromkeys(
        ("lr_scheduler_type", "lr_scheduler", "scheduler"),
        Foreign(("warmup",), "The rate rises, then falls to zero on a line."),
    ),
    # batches
    **dict.fromkeys(("per_device_train_batch_size", "per_gpu_train_batch_size", "train_batch_size"), _BATCH),
    **dict.fromkeys(("batchsize", "bs", "minibatch_size"), _BATCH),
    **dict.fromkeys(
        ("per_device_eval_batch_size", "eval_batch_size"),
        Foreign(("token_budget",), "It is a number of tokens."),
    ),
    **dict.fromkeys(("gradient_accumulation_steps", "accumulate_grad_batches"), Foreign(("accumulate",))),
    # optimizer and precision
    **dict.fromkeys(("optim", "solver"), Foreign(("optimizer",))),
    "adam_beta1": Foreign(("beta1",)),
    "adam_beta2": Foreign(("beta2",)),
    **dict.fromkeys(("adam_epsilon", "eps", "epsilon"), Foreign(("adam_eps",))),
    **dict.fromkeys(("wd", "l2", "adam_weight_decay"), Foreign(("weight_decay",))),
    **dict.fromkeys(("max_grad_norm", "gradient_clip_val", "grad_clip", "clipnorm"), Foreign(("clip_norm",))),
    **dict.fromkeys(("bf16", "fp16", "half", "amp", "mixed_precision", "half_precision"), _HALF),
    **dict.fromkeys(("precision", "torch_dtype"), Foreign(("dtype",))),
    "gradient_checkpointing": Foreign(("recompute",)),
    # model
    **dict.fromkeys(
        ("model_name_or_path", "pretrained_model_name_or_path", "model_name", "model_path"), _MODEL
    ),
    **dict.fromkeys(("base_model", "checkpoint"), _MODEL),
    **dict.fromkeys(("hidden_dropout_prob", "dropout_rate", "classifier_dropout"), Foreign(("dropout",))),
    "attention_probs_dropout_prob": Foreign(("attention_dropout",)),
    **dict.fromkeys(("hidden_size", "num_hidden_layers", "n_layers"), Foreign(("size",), "Such as 2-128-2.")),
    **dict.fromkeys(("max_position_embeddings",), Foreign(("max_positions",))),
    **dict.fromkeys(("mlm_probability", "mask_prob", "masking_prob"), Foreign(("masked_lm_prob",))),
    **dict.fromkeys(("nsp", "next_sentence_prediction"), Foreign(("next_sentence",))),
    **dict.fromkeys(("wwm", "whole_word_masking"), Foreign(("whole_word_mask",))),
    **dict.fromkeys(("do_lower_case", "lowercase", "uncased"), Foreign(("lower_case",))),
    "num_labels": Foreign((), "The classes are those of the data; leave it out."),
    **dict.fromkeys(("num_frozen_layers", "freeze_layers", "freeze_encoder"), Foreign(("freeze",))),
    # vectors
    **dict.fromkeys(("normalize_embeddings", "normalise"), Foreign(("normalize",))),
    **dict.fromkeys(("pooling", "pooling_mode"), Foreign(("pool",))),
    # data
    **dict.fromkeys(("max_seq_length", "max_seq_len", "max_len", "maxlen", "model_max_length"), _LENGTH),
    **dict.fromkeys(("max_length", "seq_len", "seq_length", "block_size"), _LENGTH),
    **dict.fromkeys(("task_name",), Foreign(("task",))),
    **dict.fromkeys(
        ("data_dir", "dataset", "dataset_name", "train_file", "train_data"), Foreign(("data", "corpus"))
    ),
    **dict.fromkeys(
        ("test_size", "validation_split", "validation_fraction", "val_size", "eval_split"), _SPLIT
    ),
    **dict.fromkeys(("max_train_samples", "n_train"), Foreign(("train_examples",))),
    **dict.fromkeys(("max_eval_samples", "max_val_samples"), Foreign(("dev_examples",))),
    **dict.fromkeys(("class_weight", "weights"), Foreign(("class_weights",))),
    **dict.fromkeys(("text_column", "text_col"), Foreign(("text", "column", "columns"))),
    **dict.fromkeys(("label_column", "label_col", "target"), Foreign(("label", "columns"))),
    # the run
    **dict.fromkeys(("output_dir", "out_dir", "outdir", "save_dir", "logging_dir", "output"), _OUT),
    **dict.fromkeys(("random_state", "random_seed", "seed", "rng"), _SEED),
    **dict.fromkeys(
        ("verbose", "verbosity", "show", "progress", "show_progress_bar", "disable_tqdm", "quiet", "silent"),
        _SHOW,
    ),
    **dict.fromkeys(
        ("n_jobs", "num_threads", "n_threads", "num_workers", "dataloader_num_workers"), _THREADS
    ),
    **dict.fromkeys(("n_gpu", "gpus", "num_gpus", "num_processes"), Foreign(("devices",))),
    **dict.fromkeys(("backend", "framework"), Foreign(("engine",))),
    **dict.fromkeys(("resume_from_checkpoint", "warm_start"), Foreign(("resume",))),
    **dict.fromkeys(("save_steps", "checkpoint_every"), Foreign(("checkpoint_steps",))),
    "save_total_limit": Foreign(("keep",)),
    **dict.fromkeys(("eval_steps", "evaluation_strategy", "eval_strategy", "logging_steps"), _MEASURED),
    **dict.fromkeys(("early_stopping", "early_stopping_patience", "n_iter_no_change"), _PATIENCE),
    "load_best_model_at_end": _BEST,
    **dict.fromkeys(("callbacks", "callback", "report_to"), Foreign(("on_log",), "It is a function.")),
}

# A note that belongs to an option here, whatever it is called elsewhere.
NOTES = {"minutes": "A run is as long as `steps` or `minutes` say; give one of them."}

# Arguments that methods of estimators have elsewhere, and that are not options here.
METHOD_ARGUMENTS = {"sample_weight": "rows have no weights, so leave it out."}
DEV_ARGUMENTS = ("validation_data", "eval_set", "eval_dataset")  # of a method that has `dev` here
IN_BATCHES = "Texts are processed in batches of a few thousand tokens; leave it out."

_ALREADY = "What comes out are arrays of NumPy; leave it out."
_PADDED = "What comes back has rows filled up with [PAD], `input_ids` and `attention_mask`; leave it out."
_LOADING = {
    **dict.fromkeys(("device", "device_map"), 'Give engine="jax" for a GPU; it takes the first one.'),
    **dict.fromkeys(("torch_dtype", "precision"), "Did you mean dtype?"),
    "backend": "Did you mean engine?",
    **dict.fromkeys(
        ("revision", "cache_dir", "token", "use_auth_token", "local_files_only", "trust_remote_code"),
        "Nothing is downloaded or executed; leave it out.",
    ),
    **dict.fromkeys(("model", "model_name", "model_name_or_path"), "Did you mean folder?"),
}
# Arguments that functions of other libraries take, and what to do instead, by the function here.
FOREIGN_ARGUMENTS = {
    "Bert.encode": {
        "normalize_embeddings": "Give it to what comes back, as vectors(normalize=True).",
        **dict.fromkeys(("convert_to_numpy", "convert_to_tensor", "return_tensors"), _ALREADY),
        **dict.fromkeys(("batch_size", "chunk_size"), IN_BATCHES),
        "show_progress_bar": "A TextEncoder with verbose=True shows one.",
        "output_value": "Of what comes back, vectors() are of texts and hidden_states[-1] of tokens.",
        "output_hidden_states": "`hidden_states` of what comes back has all of them; leave it out.",
        "output_attentions": "Give attentions=True.",
        **dict.fromkeys(("device", "precision"), "Both belong to the model: minibert.load(..., dtype=...)."),
        **dict.fromkeys(("prompt", "prompt_name"), "Put it in front of each text."),
        **dict.fromkeys(("max_length", "truncation"), "Give model.tokenizer(texts, max_length=...)."),
    },
    "Encoded.vectors": {
        **dict.fromkeys(("normalize_embeddings", "normalise"), "Did you mean normalize?"),
        **dict.fromkeys(("pooling", "pooling_mode"), "Did you mean pool?"),
    },
    "Bert.fill_mask": {
        **dict.fromkeys(("top_k", "k", "n", "topk"), "Did you mean top?"),
        **dict.fromkeys(("inputs", "texts"), "Give it first, without a name."),
    },
    "Tokenizer.__call__": {
        "padding": _PADDED,
        **dict.fromkeys(
            ("return_attention_mask", "return_token_type_ids", "return_offsets_mapping", "return_length"),
            "What comes back has them all; leave it out.",
        ),
        "return_tensors": "What comes back has arrays of NumPy, which torch.as_tensor takes; leave it out.",
        "text_pair": "Did you mean pair?",
        "is_split_into_words": "Join the words with spaces.",
        "return_special_tokens_mask": "Compare ids with `all_special_ids` of the tokenizer.",
        "stride": "Overlapping windows are long='windows' of an estimator.",
    },
    "Tokenizer.encode": {
        **dict.fromkeys(
            ("max_length", "truncation", "padding", "return_tensors"), "Call the tokenizer itself."
        ),
        "text_pair": "Call the tokenizer itself, with `pair`.",
    },
    "Tokenizer.decode": {
        "clean_up_tokenization_spaces": "Spaces before punctuation stay; leave it out.",
    },
    "Tokenizer.from_pretrained": {
        **dict.fromkeys(("do_lower_case", "lowercase", "uncased"), "Did you mean lower_case?"),
        "model_max_length": "Give max_length to the call of the tokenizer.",
        "use_fast": "Leave it out.",
    },
    "Bert.from_pretrained": _LOADING,
    "load": _LOADING,
}


# Attributes that objects have elsewhere, by the class here.
FOREIGN_ATTRIBUTES = {
    "Bert": {
        **dict.fromkeys(
            ("to", "cuda", "cpu", "half"),
            'An engine and a dtype are chosen when a model is loaded: minibert.load(folder, engine="jax").',
        ),
        **dict.fromkeys(("eval", "train"), "A Bert never applies dropout, so leave the call out."),
        **dict.fromkeys(("forward", "embed", "get_sentence_embedding"), "Use encode(texts)."),
        **dict.fromkeys(
            ("predict", "fit"), "Use minibert.TextClassifier(folder), which learns to predict with fit."
        ),
        "save": "Use save_pretrained(folder).",
        **dict.fromkeys(("parameters", "named_parameters", "state_dict"), "The arrays are in `params`."),
    },
    "Encoded": {
        "last_hidden_state": "Use hidden_states[-1].",
        "pooler_output": "Use pooled.",
        **dict.fromkeys(
            ("numpy", "cpu", "detach", "tolist"),
            "An Encoded holds arrays of NumPy, such as hidden_states[-1] and vectors().",
        ),
    },
    "TextEncoder": {
        **dict.fromkeys(("encode", "predict", "embed"), "Use transform(texts)."),
        "save": "An encoder learns nothing, so keep the folder of its model.",
    },
}


def refuse_unknown(
    given: Iterable[str],
    known: Container[str],
    name: str,
    advise: Callable[[str], str],
) -> None:
    """Refuse the first argument that a function does not have, with advice.

    Parameters
    ----------
    given : iterable of str
        The names of the arguments of a call.
    known : container of str
        Those that the function has.
    name : str
        What the caller knows the function by, for the error.
    advise : callable
        Given the name of an argument, returns what to do instead; "" leaves the error to Python.

    Raises
    ------
    TypeError
        As Python does, but with the advice.
    """
    for argument in given:
        if argument not in known and (advice := advise(argument)):
            raise TypeError(f"{name}() has no argument {argument!r}; {_lowered(advice)}")


def explains_foreign_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function explain what to do in place of an argument that other libraries have.

    Parameters
    ----------
    function : function
        Its qualified name is a key of FOREIGN_ARGUMENTS.

    Returns
    -------
    function
        The same with the same signature; it raises TypeError, as `refuse_unknown` does.
    """
    name = function.__qualname__
    known = inspect.signature(function).parameters
    remedies = FOREIGN_ARGUMENTS[name]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_unknown(kwargs, known, name, lambda argument: remedies.get(argument, ""))
        return function(*args, **kwargs)

    return call


def explains_foreign_attributes(kind: type[Kind]) -> type[Kind]:
    """Let objects of a class explain what to use in place of an attribute that other libraries have.

    This sets `__getattr__`, which type checkers don't see, so that they still refuse unknown attributes.

    Parameters
    ----------
    kind : type
        A class with a row in FOREIGN_ATTRIBUTES, by its name.

    Returns
    -------
    type
        The same class.
    """

    def explain(self: Kind, name: str) -> Any:
        advice = attribute_advice(kind.__name__, name)
        if not advice or hasattr(type(self), name):  # a property of a subclass may have failed
            return object.__getattribute__(self, name)  # raises the error once more
        message = f"{type(self).__name__!r} object has no attribute {name!r}; {advice}"
        raise AttributeError(message, name=name, obj=self)

    type.__setattr__(kind, "__getattr__", explain)
    return kind


def attribute_advice(kind: str, name: str) -> str:
    """Say what to use in place of an attribute that objects of a class have in other libraries.

    Parameters
    ----------
    kind : str
        The name of a class with a row in FOREIGN_ATTRIBUTES.
    name : str
        The name of the attribute.

    Returns
    -------
    str
        The end of a sentence; "" if the name is not in the table.
    """
    return _lowered(FOREIGN_ATTRIBUTES[kind].get(name, ""))


def loaded_by(loader: str) -> Callable[[type[Kind]], type[Kind]]:
    """Let a class that is called with nothing but a path name the function that loads folders.

    Parameters
    ----------
    loader : str
        The name of that function, such as "minibert.load".

    Returns
    -------
    function
        A decorator for a class.
    """

    def decorate(kind: type[Kind]) -> type[Kind]:
        initialise = vars(kind)["__init__"]

        @functools.wraps(initialise)
        def checked(self: Kind, *args: Any, **kwargs: Any) -> None:
            if len(args) == 1 and not kwargs and isinstance(args[0], str | os.PathLike):
                folder = os.fspath(args[0])
                call = f"{kind.__name__}({folder!r})"
                raise InputError(f"{call} does not read a folder; use {loader}({folder!r}).")
            initialise(self, *args, **kwargs)

        type.__setattr__(kind, "__init__", checked)
        return kind

    return decorate


def _lowered(sentence: str) -> str:
    """Return a sentence as it continues another after a semicolon."""
    return sentence[:1].lower() + sentence[1:]


def advice_for(name: str, known: Mapping[str, str] | Iterable[str]) -> str:
    """Say what an option of another library is called here.

    Parameters
    ----------
    name : str
        The name as it was given.
    known : iterable of str, or mapping of str to str
        The names of the options here; the values of a mapping are shown in their place.

    Returns
    -------
    str
        The end of an error: a question and perhaps a sentence. "" if the name is not in the table, or nothing
        among the known options corresponds to it.

    Examples
    --------
    >>> advice_for("lr", ["epochs", "learning_rates"]), advice_for("lr", ["text"])
    ('did you mean learning_rates?', '')
    """
    foreign = _foreign(name)
    if foreign is None:
        return ""
    option = name_here(name, known)
    if option:
        shown = known[option] if isinstance(known, Mapping) else option
        note = foreign.note or NOTES.get(option, "")
        return f"did you mean {shown}? {note}".rstrip()
    if foreign.ours:
        return ""
    return _lowered(foreign.note)


def name_here(name: str, known: Iterable[str]) -> str:
    """Find the option that corresponds to one of another library.

    Parameters
    ----------
    name : str
        The name as it was given, with hyphens or underscores between its words.
    known : iterable of str
        The names of the options here.

    Returns
    -------
    str
        One of these; "" if the name is not in the table, or none of them corresponds to it.
    """
    foreign = _foreign(name)
    if foreign is None:
        return ""
    known = set(known)
    names = (option for option in foreign.ours if option in known and option != name)
    return next(names, "")


def _foreign(name: str) -> Foreign | None:
    return FOREIGN_NAMES.get(name.lower().replace("-", "_"))
