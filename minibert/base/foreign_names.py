"""What the options of transformers, scikit-learn, Keras and other libraries are called here."""

import functools
import inspect
import os
from abc import ABCMeta
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from minibert.base.errors import did_you_mean
from minibert.core.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")
Kind = TypeVar("Kind")


class Foreign(NamedTuple):
    """What an option of another library is called here."""

    ours: tuple[str, ...] = ()  # names of options; the first that the function has is meant
    note: str = ""  # what else differs, as a sentence
    value: str = ""  # the value of the option that means the same


_HALF = Foreign(("dtype",), value="bfloat16")
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
_SIZE = Foreign(("size",), "Such as 2-128-2.")
_CLASSES = Foreign((), "The classes are those of the data; leave it out.")
_SEVERAL = Foreign((), "For several labels of a text there is MultilabelClassifier.")
_LOSS = Foreign((), "The loss is that of the task; program 20 of the docs is a loop with another.")
_PIECES = Foreign((), "The model reads pieces of words with its own vocabulary; leave it out.")
_METRIC = Foreign((), "The metric is that of the task; for others give predict(X) to sklearn.metrics.")
_WARMUP = Foreign(("warmup",), "It is a share of the steps, such as 0.1.")
_MEASURED = Foreign(("evaluations",), "Fine-tuning evaluates the model after every epoch.")
_RECORDED = Foreign((), "Every step is recorded in metrics.jsonl of the run; leave it out.")
_KEPT = Foreign((), "A run is never written over; give another folder, or resume the run.")
_BOTH = Foreign((), "Training ends with an evaluation; leave it out.")
_SCHEME = Foreign((), "The scheme, such as BIO or BIOES, is recognised from the tags; leave it out.")
_THRESHOLD = Foreign((), "Thresholds are chosen on dev; compare predict_proba(X) with one of your own.")
_CALLBACK = Foreign(("on_log",), "It is a function, which is given the number of a step and its values.")

_ALREADY = "Results are NumPy arrays; leave it out."
IN_BATCHES = "Texts are processed in batches of a few thousand tokens; leave it out."
NO_UPLOAD = "Nothing is uploaded; save the model, then call hf upload NAME FOLDER."

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
    "batch_size": Foreign((), IN_BATCHES),
    "group_by_length": Foreign((), "Batches have no padding; leave it out."),
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
    **dict.fromkeys(("wd", "l2", "adam_weight_decay", "penalty"), Foreign(("weight_decay",))),
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
    **dict.fromkeys(("hidden_size", "num_hidden_layers", "n_layers", "config"), _SIZE),
    **dict.fromkeys(("num_attention_heads", "n_heads", "intermediate_size"), _SIZE),
    **dict.fromkeys(("model_size", "num_layers", "n_layer", "num_heads", "n_head", "n_embd"), _SIZE),
    **dict.fromkeys(("hidden_dim", "d_model", "embedding_dim"), _SIZE),
    **dict.fromkeys(("max_position_embeddings",), Foreign(("max_positions",))),
    **dict.fromkeys(("mlm_probability", "mask_prob", "masking_prob"), Foreign(("masked_lm_prob",))),
    "mlm": Foreign(("left_to_right",), "Words are masked unless it is True."),
    **dict.fromkeys(("nsp", "next_sentence_prediction"), Foreign(("next_sentence",))),
    **dict.fromkeys(("wwm", "whole_word_masking"), Foreign(("whole_word_mask",))),
    **dict.fromkeys(("do_lower_case", "lowercase", "uncased"), Foreign(("lower_case",))),
    **dict.fromkeys(("num_labels", "id2label", "label2id", "classes"), _CLASSES),
    **dict.fromkeys(("num_classes", "n_classes", "class_names", "label_names", "labels"), _CLASSES),
    **dict.fromkeys(("threshold", "thresholds"), _THRESHOLD),
    **dict.fromkeys(("scheme", "tagging_scheme", "tag_scheme"), _SCHEME),
    **dict.fromkeys(("multi_label", "multilabel", "problem_type"), _SEVERAL),
    **dict.fromkeys(("loss", "criterion", "label_smoothing_factor", "label_smoothing"), _LOSS),
    **dict.fromkeys(
        ("tokenizer", "tokenizer_name", "vocab_file", "vocab_path"),
        Foreign(("vocab",), "A model that is given has its own vocabulary."),
    ),
    **dict.fromkeys(("num_frozen_layers", "freeze_layers", "freeze_encoder"), Foreign(("freeze",))),
    # vectors
    **dict.fromkeys(("normalize_embeddings", "normalise"), Foreign(("normalize",))),
    **dict.fromkeys(("pooling", "pooling_mode"), Foreign(("pool",))),
    **dict.fromkeys(("convert_to_numpy", "convert_to_tensor"), Foreign((), _ALREADY)),
    **dict.fromkeys(("ngram_range", "max_features", "stop_words", "analyzer"), _PIECES),
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
    "remove_unused_columns": Foreign((), "Other columns are not read; leave it out."),
    **dict.fromkeys(("doc_stride", "stride"), Foreign((), "Windows overlap in any case; leave it out.")),
    "aggregation_strategy": Foreign((), "A word has the tag of its first piece; leave it out."),
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
    **dict.fromkeys(("eval_steps", "evaluation_strategy", "eval_strategy"), _MEASURED),
    **dict.fromkeys(("logging_steps", "log_every", "log_interval"), _RECORDED),
    **dict.fromkeys(("overwrite_output_dir", "overwrite"), _KEPT),
    **dict.fromkeys(("do_train", "do_eval"), _BOTH),
    **dict.fromkeys(("early_stopping", "early_stopping_patience", "n_iter_no_change"), _PATIENCE),
    "load_best_model_at_end": _BEST,
    **dict.fromkeys(("metric_for_best_model", "metric", "metrics", "scoring", "compute_metrics"), _METRIC),
    **dict.fromkeys(("push_to_hub", "hub_model_id"), Foreign((), NO_UPLOAD)),
    "save_strategy": Foreign(
        ("checkpoint_steps",), "It is a number; else there is a checkpoint every 5 minutes."
    ),
    "device": Foreign((), 'For a GPU give engine="jax"; it takes the first one.'),
    "report_to": Foreign(
        (), "A run writes events for TensorBoard; call other loggers from on_log, in Python."
    ),
    **dict.fromkeys(("callbacks", "callback", "on_epoch_end", "on_step_end", "on_step"), _CALLBACK),
}

# What Hugging Face and people call tasks; the names have hyphens between words.
FOREIGN_TASKS = {
    **dict.fromkeys(
        (
            "text-classification",
            "sequence-classification",
            "classification",
            "sentiment",
            "sentiment-analysis",
        ),
        "classify",
    ),
    **dict.fromkeys(("multi-label", "multi-label-classification", "multilabel-classification"), "multilabel"),
    **dict.fromkeys(("regression", "text-regression"), "regress"),
    **dict.fromkeys(("token-classification", "tagging", "pos"), "tag"),
    **dict.fromkeys(("question-answering", "extractive-qa"), "qa"),
    **dict.fromkeys(("sentence-similarity", "sentence-embedding"), "similarity"),
}

# A note that belongs to an option here, whatever it is called elsewhere.
NOTES = {"minutes": "A run is as long as `steps` or `minutes` say; give one of them."}

# Arguments that methods of estimators have elsewhere, and that are not options here, by the method.
_ROWS = {
    **dict.fromkeys(("texts", "documents", "raw_documents", "inputs", "sentences"), "did you mean X?"),
    **dict.fromkeys(("X_train", "x_train", "train_dataset", "train_data", "dataset"), "did you mean X?"),
    **dict.fromkeys(("labels", "targets", "Y", "y_train", "train_labels"), "did you mean y?"),
    "sample_weight": "rows have no weights, so leave it out.",
}
_SCORES = {
    **dict.fromkeys(("question", "context"), "give pairs, such as [(question, paragraph)]."),
    **dict.fromkeys(
        ("return_all_scores", "top_k", "return_proba"), "predict_proba(X) has the probability of each class."
    ),
}
METHOD_ARGUMENTS: dict[str, dict[str, str]] = {
    **dict.fromkeys(("fit", "score", "evaluate"), _ROWS),
    **dict.fromkeys(("predict", "predict_proba", "predict_spans", "transform"), _ROWS | _SCORES),
    "explain": {
        **dict.fromkeys(("target", "label", "class_name"), "did you mean answer?"),
        **dict.fromkeys(("X", "texts", "inputs"), "did you mean text?"),
    },
}
DEV_ARGUMENTS = ("validation_data", "eval_set", "eval_dataset")  # of a method that has `dev` here

_PADDED = "The result has rows filled up with [PAD], `input_ids` and `attention_mask`; leave it out."
_LOADING = {
    **dict.fromkeys(("device", "device_map"), 'Give engine="jax" for a GPU; it takes the first one.'),
    **dict.fromkeys(("torch_dtype", "precision"), "Did you mean dtype?"),
    "backend": "Did you mean engine?",
    "task": "The folder says what its model was trained for; leave it out.",
    **dict.fromkeys(
        ("num_labels", "id2label", "label2id"),
        "For classes of your own give the folder to TextClassifier(...).",
    ),
    **dict.fromkeys(("output_attentions", "output_hidden_states"), "Give attentions=True to encode(...)."),
    **dict.fromkeys(
        ("revision", "cache_dir", "token", "use_auth_token", "local_files_only", "trust_remote_code"),
        "Nothing is downloaded or executed; leave it out.",
    ),
    **dict.fromkeys(("model", "model_name", "model_name_or_path"), "Did you mean folder?"),
}
# Arguments that functions of other libraries take, and what to do instead, by the function here.
FOREIGN_ARGUMENTS = {
    "Bert.encode": {
        **dict.fromkeys(
            ("normalize", "normalize_embeddings"), "Give it to the result, as vectors(normalize=True)."
        ),
        **dict.fromkeys(("convert_to_numpy", "convert_to_tensor", "return_tensors"), _ALREADY),
        **dict.fromkeys(("batch_size", "chunk_size"), IN_BATCHES),
        "show_progress_bar": "A TextEncoder with verbose=True shows one.",
        **dict.fromkeys(
            ("pool", "pooling", "pooling_mode"), 'Give it to the result, as vectors(pool="mean").'
        ),
        "output_value": "Of the result, vectors() are of texts and hidden_states[-1] of tokens.",
        "output_hidden_states": "`hidden_states` of the result has all of them; leave it out.",
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
            "The result has them all; leave it out.",
        ),
        "return_tensors": "The result has NumPy arrays, which torch.as_tensor takes; leave it out.",
        "text_pair": "Did you mean pair?",
        **dict.fromkeys(("max_len", "max_seq_length", "model_max_length"), "Did you mean max_length?"),
        "return_overflowing_tokens": "Overlapping windows are long='windows' of an estimator.",
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
        "padding_side": "Rows are filled up at their ends; leave it out.",
        "use_fast": "Leave it out.",
    },
    "Bert.from_pretrained": _LOADING,
    "load": _LOADING,
    "export": {
        **dict.fromkeys(("folder", "path", "output", "output_dir", "save_directory"), "Did you mean out?"),
        **dict.fromkeys(("pool", "pooling", "pooling_mode"), "Did you mean sentence_transformers?"),
        **dict.fromkeys(("precision", "torch_dtype"), "Did you mean dtype?"),
        "format": "The format is Hugging Face's; onnx=True writes model.onnx as well.",
        "push_to_hub": NO_UPLOAD,
    },
}


# Attributes that objects have elsewhere, by the class here or one of its bases; those of the package first.
_VECTORS = "An Encoded holds several arrays; vectors() has one vector for each text."
_COSINES = "Of vectors made with normalize=True the cosines are a @ b.T."
_TRAINING = "metrics() has what was recorded in training, and `report` the result."
_TRANSFORMERS = "Use minibert.load(folder)."
_EXPORT = "Save it; minibert.export(folder, out=..., onnx=True) then writes model.onnx."
_ENCODING = dict.fromkeys(
    ("to", "cuda", "convert_to_tensors"), "It holds NumPy arrays, which torch.as_tensor takes."
)
FOREIGN_ATTRIBUTES = {
    "minibert": {
        **dict.fromkeys(("AutoModel", "BertModel", "AutoModelForMaskedLM", "BertForMaskedLM"), _TRANSFORMERS),
        **dict.fromkeys(("from_pretrained", "load_model", "BertForPreTraining"), _TRANSFORMERS),
        **dict.fromkeys(
            ("AutoModelForSequenceClassification", "BertForSequenceClassification", "BertClassifier"),
            "Use minibert.load(folder) for a fine-tuned model; minibert.TextClassifier(folder) trains one.",
        ),
        **dict.fromkeys(
            ("AutoModelForTokenClassification", "BertForTokenClassification"),
            "Use minibert.load(folder) for a fine-tuned model; minibert.TokenTagger(folder) trains one.",
        ),
        **dict.fromkeys(
            ("AutoModelForQuestionAnswering", "BertForQuestionAnswering"),
            "Use minibert.load(folder) for a fine-tuned model; minibert.QuestionAnswerer(folder) trains one.",
        ),
        **dict.fromkeys(
            ("AutoTokenizer", "BertTokenizer", "BertTokenizerFast"),
            "Use minibert.Tokenizer.from_pretrained(folder).",
        ),
        "AutoConfig": "Use minibert.load(folder).config.",
        "pipeline": "Use minibert.load(folder), and then fill_mask, predict, tag or predict_spans.",
        **dict.fromkeys(
            ("Trainer", "TrainingArguments", "train", "fit", "SentenceTransformerTrainer"),
            "Use minibert.TextClassifier(folder).fit(texts, labels), minibert.finetune or minibert.pretrain.",
        ),
        "DataCollatorForLanguageModeling": "Use minibert.pretrain(texts), which masks words itself.",
        **dict.fromkeys(
            ("SentenceTransformer", "TfidfVectorizer", "Vectorizer"),
            "Use minibert.TextEncoder(folder), whose transform(texts) makes vectors.",
        ),
        "CrossEncoder": "Use minibert.load(folder), whose predict(pairs) gives scores.",
        **dict.fromkeys(("util", "cos_sim", "cosine_similarity", "semantic_search"), _COSINES),
        **dict.fromkeys(
            ("save", "save_model"), "Use model.save_pretrained(folder), or save(folder) of an estimator."
        ),
        **dict.fromkeys(
            ("EarlyStoppingCallback", "early_stopping", "EarlyStopping"), "Give patience=2 to an estimator."
        ),
        **dict.fromkeys(
            ("TrainerCallback", "Callback"),
            "Give a function to pretrain, finetune or an estimator, as on_log.",
        ),
        **dict.fromkeys(
            ("WordPieceTrainer", "BertWordPieceTokenizer", "train_tokenizer"),
            "The command minibert vocab learns a vocabulary; minibert.pretrain(texts) does so by itself.",
        ),
        **dict.fromkeys(
            ("load_dataset", "Dataset", "DataLoader"),
            "Give lists, a DataFrame or a datasets.Dataset to fit(X, y) or pretrain.",
        ),
        "train_test_split": "An estimator takes split_dev=0.1, and fit(X, y, dev=(X_dev, y_dev)).",
        **dict.fromkeys(
            ("set_seed", "seed_everything"),
            "Give seed=... to pretrain or finetune, random_state=... to an estimator.",
        ),
        **dict.fromkeys(("visualize", "plot", "explore", "bertviz"), "Use minibert.show(model)."),
        **dict.fromkeys(
            ("metrics", "evaluate", "classification_report"), "Use evaluate(X, y) of an estimator."
        ),
        **dict.fromkeys(("AdamW", "Adam", "Lamb"), "Use optimizer_for of minibert.core.optim."),
        "get_linear_schedule_with_warmup": "Use warmup_linear of minibert.core.optim.",
    },
    "Bert": {
        **dict.fromkeys(
            ("to", "cuda", "cpu", "half", "device"),
            'An engine and a dtype are chosen when a model is loaded: minibert.load(folder, engine="jax").',
        ),
        **dict.fromkeys(("eval", "train"), "A Bert never applies dropout, so leave the call out."),
        **dict.fromkeys(("forward", "embed", "get_sentence_embedding"), "Use encode(texts)."),
        **dict.fromkeys(
            ("predict", "fit", "predict_proba"),
            "Use minibert.TextClassifier(folder), which learns to predict with fit.",
        ),
        **dict.fromkeys(("save", "save_model"), "Use save_pretrained(folder)."),
        "push_to_hub": NO_UPLOAD,
        **dict.fromkeys(("to_onnx", "export"), _EXPORT),
        "load": "Use minibert.load(folder).",
        **dict.fromkeys(
            ("perplexity", "score", "log_likelihood"),
            "Use score_texts of minibert.ask.scoring.",
        ),
        **dict.fromkeys(
            ("get_attention", "attention", "attentions"), "Use encode(texts, attentions=True).attentions."
        ),
        **dict.fromkeys(("layers", "encoder"), 'The arrays of the layers are in params.tree["layers"].'),
        **dict.fromkeys(
            ("parameters", "named_parameters", "state_dict", "load_state_dict"), "The arrays are in `params`."
        ),
        **dict.fromkeys(
            ("embeddings", "get_input_embeddings"), 'The array of them is params["embeddings.word"].'
        ),
        "num_parameters": "Use n_parameters.",
        **dict.fromkeys(
            ("freeze", "requires_grad_"), "Give freeze=... to minibert.TextClassifier, or another estimator."
        ),
        "resize_token_embeddings": "The command minibert extend adds words to a model.",
        **dict.fromkeys(
            ("similarity", "similarity_pairwise"),
            "Cosines are v @ v.T, with v = encode(texts).vectors(normalize=True).",
        ),
        **dict.fromkeys(
            ("get_sentence_embedding_dimension", "hidden_size", "dim"), "Use config.hidden_size."
        ),
        **dict.fromkeys(("max_seq_length", "max_length"), "Use config.max_position_embeddings."),
        **dict.fromkeys(("predict_mask", "unmask", "fill"), "Use fill_mask(text)."),
        **dict.fromkeys(("generate", "logits"), "Use fill_mask(text) for words, or masked_lm_logits."),
        "tokenize": "Use tokenizer.tokenize(text).",
        "explain": "Use minibert.TextClassifier, whose answers can be explained.",
    },
    "Encoded": {
        "last_hidden_state": "Use hidden_states[-1].",
        "pooler_output": "Use pooled.",
        **dict.fromkeys(
            ("numpy", "cpu", "detach", "tolist"),
            "An Encoded holds arrays of NumPy, such as hidden_states[-1] and vectors().",
        ),
        **dict.fromkeys(("shape", "T", "mean", "astype", "reshape", "dtype"), _VECTORS),
        **dict.fromkeys(("embeddings", "sentence_embedding", "embedding"), "Use vectors()."),
        "logits": "Use fill_mask(text) of the model for words, or its masked_lm_logits.",
    },
    "Guess": {
        **dict.fromkeys(("token_str", "word", "sequence"), "Use token."),
        **dict.fromkeys(("score", "prob", "p"), "Use probability."),
    },
    "Encoding": _ENCODING,
    "BatchEncoding": _ENCODING,
    "Tokenizer": {
        **dict.fromkeys(
            ("encode_plus", "batch_encode_plus", "prepare_for_model"),
            "Call the tokenizer itself, with a text or a list of them.",
        ),
        **dict.fromkeys(
            ("model_max_length", "enable_truncation", "truncation"),
            "Give max_length to the call of the tokenizer.",
        ),
        **dict.fromkeys(
            ("padding_side", "enable_padding", "pad"),
            "`input_ids` of several texts has [PAD] at the ends of rows.",
        ),
        **dict.fromkeys(
            ("add_tokens", "add_special_tokens"),
            "The command minibert extend adds words to a model and its vocabulary.",
        ),
        **dict.fromkeys(("token_to_id", "piece_to_id"), "Use convert_tokens_to_ids(token)."),
        **dict.fromkeys(("id_to_token", "id_to_piece"), "Use convert_ids_to_tokens(number)."),
        "get_vocab_size": "Use vocab_size.",
        **dict.fromkeys(("save", "save_vocabulary"), "Use save_pretrained(folder)."),
        **dict.fromkeys(("from_file", "load"), "Use from_pretrained(path), which reads files as well."),
        **dict.fromkeys(
            ("train", "train_from_iterator", "train_new_from_iterator"),
            "The command minibert vocab learns a vocabulary; minibert.pretrain(texts) does so by itself.",
        ),
    },
    "TextEncoder": {
        **dict.fromkeys(("encode", "predict", "embed"), "Use transform(texts)."),
        **dict.fromkeys(
            ("save", "save_pretrained"), "An encoder learns nothing, so keep the folder of its model."
        ),
        **dict.fromkeys(("from_pretrained", "load"), "Use TextEncoder(folder)."),
        **dict.fromkeys(("similarity", "cos_sim"), _COSINES),
        **dict.fromkeys(("most_similar", "search", "semantic_search", "kneighbors", "nearest"), _COSINES),
        **dict.fromkeys(
            ("get_sentence_embedding_dimension", "dim", "n_features_out_"),
            "get_feature_names_out() has a name for each number of a vector.",
        ),
        **dict.fromkeys(
            ("inverse_transform", "vocabulary_"), "The numbers of a vector do not stand for words."
        ),
        "tokenizer": "Use minibert.load(folder).tokenizer.",
        "max_seq_length": "Use max_length.",
    },
    "Estimator": {
        **dict.fromkeys(("train", "train_model"), "Use fit(X, y)."),
        "partial_fit": "Use fit(X, y) with all rows.",
        **dict.fromkeys(
            ("transform", "encode", "embed", "fit_transform"), "Use minibert.TextEncoder(folder)."
        ),
        **dict.fromkeys(
            ("history", "history_", "loss_curve_", "log_history", "best_score_"),
            "`report_` has the result; with `out`, minibert.Run.open(out).metrics() has what was recorded.",
        ),
        "report_": "It is there after fit(X, y).",
        **dict.fromkeys(("save_pretrained", "save_model", "dump"), "Use save(folder)."),
        **dict.fromkeys(("to_onnx", "export"), _EXPORT),
        **dict.fromkeys(
            ("classification_report", "confusion_matrix"),
            "Use evaluate(X, y), or give y and predict(X) to sklearn.metrics.",
        ),
        **dict.fromkeys(("n_features_in_", "feature_names_in_"), "Texts have no features to be counted."),
        **dict.fromkeys(("from_pretrained", "load_model"), _TRANSFORMERS),
        "push_to_hub": NO_UPLOAD,
        "tokenizer": "Use model_.tokenizer.",
        "config": "Use model_.params.config.",
        **dict.fromkeys(("to", "cuda", "device"), 'Give engine="jax" for a GPU; it takes the first one.'),
    },
    "TextClassifier": {
        "classes_": "It is there after fit(X, y).",
        **dict.fromkeys(("classes", "labels_", "id2label"), "Use classes_."),
        **dict.fromkeys(
            ("decision_function", "predict_log_proba", "predict_probabilities", "logits"),
            "Use predict_proba(X).",
        ),
        **dict.fromkeys(("predict_labels", "classify"), "Use predict(X)."),
        **dict.fromkeys(
            ("coef_", "feature_importances_"), "explain(text) has the contribution of each word."
        ),
    },
    "TokenTagger": {
        **dict.fromkeys(("predict_proba", "entities", "ents", "predict_tags"), "Use tag(texts)."),
    },
    "QuestionAnswerer": {
        **dict.fromkeys(("predict_proba", "predict_answers", "ask"), "Use predict_spans(X)."),
    },
    "Explanation": {
        **dict.fromkeys(
            ("scores", "attributions", "values", "as_list"),
            "`words` has each word with its score; top(n) the largest.",
        ),
        **dict.fromkeys(
            ("show", "plot", "show_in_notebook", "visualize"),
            "Print it, or let a notebook show it in colours.",
        ),
    },
    "Run": {
        **dict.fromkeys(("history", "log_history", "losses", "logs", "state"), _TRAINING),
        **dict.fromkeys(("best_model", "load_best", "best_model_checkpoint"), "Use model."),
        **dict.fromkeys(
            ("predict", "encode", "fill_mask", "evaluate"), "It is a method of the run's `model`."
        ),
        **dict.fromkeys(
            ("save", "save_model", "save_pretrained"), "The run is in `folder`, which minibert.load reads."
        ),
        **dict.fromkeys(
            ("plot", "show"), "A notebook shows its page; minibert.compare([run]) draws its curves."
        ),
        **dict.fromkeys(
            ("resume", "train"), "Use minibert.pretrain(out=folder, resume=True), or minibert.finetune."
        ),
        **dict.fromkeys(("load", "from_folder", "from_pretrained", "from_path"), "Use Run.open(folder)."),
        "summary": "Print it.",
    },
    "Comparison": {
        **dict.fromkeys(("plot", "show"), "A notebook shows its curves; write(path) makes a page of them."),
        **dict.fromkeys(
            ("to_dataframe", "to_pandas", "to_frame"),
            "`figures` has the numbers, which pandas.DataFrame takes.",
        ),
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
    takes_any = any(one.kind is one.VAR_KEYWORD for one in known.values())
    names = () if takes_any else tuple(one for one in known if one not in ("self", "cls"))

    def advise(argument: str) -> str:
        return remedies.get(argument) or did_you_mean(argument, names)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_unknown(kwargs, known, name, advise)
        return function(*args, **kwargs)

    return call


def explains_foreign_attributes(kind: type[Kind]) -> type[Kind]:
    """Let objects of a class explain what to use in place of an attribute that other libraries have.

    This sets `__getattr__`, which type checkers don't see, so that they still refuse unknown attributes.

    Parameters
    ----------
    kind : type
        A class with a row in FOREIGN_ATTRIBUTES, by its name; subclasses explain these and their own.

    Returns
    -------
    type
        The same class.
    """

    def explain(self: Kind, name: str) -> Any:
        if not attribute_advice(type(self), name) or hasattr(type(self), name):  # a property may have failed
            return object.__getattribute__(self, name)  # raises the error once more
        raise no_attribute(self, name)

    type.__setattr__(kind, "__getattr__", explain)
    return kind


def no_attribute(owner: object, name: str) -> AttributeError:
    """Return the error for an attribute that an object does not have, with advice if there is any.

    Parameters
    ----------
    owner : object
    name : str
        The name of the attribute.

    Returns
    -------
    AttributeError
    """
    message = f"{type(owner).__name__!r} object has no attribute {name!r}"
    if advice := attribute_advice(type(owner), name):
        message += f"; {advice}"
    return AttributeError(message, name=name, obj=owner)


def attribute_advice(kind: type, name: str) -> str:
    """Say what to use in place of an attribute that objects of a class have in other libraries.

    Parameters
    ----------
    kind : type
        A class; it or one of its bases has a row in FOREIGN_ATTRIBUTES, by its name.
    name : str
        The name of the attribute.

    Returns
    -------
    str
        The end of a sentence; "" if the name is not in the table.
    """
    rows = (FOREIGN_ATTRIBUTES.get(base.__name__, {}) for base in kind.__mro__)
    return next((_lowered(row[name]) for row in rows if name in row), "")


def name_advice(name: str) -> str:
    """Say what to use in place of a name that the package of another library has.

    Parameters
    ----------
    name : str
        The name, such as "AutoModel".

    Returns
    -------
    str
        The end of a sentence; "" if the name is not in the table.
    """
    return _lowered(FOREIGN_ATTRIBUTES["minibert"].get(name, ""))


class ExplainsNames(ABCMeta):
    """Let a class, too, explain what to use in place of an attribute: `TextClassifier.from_pretrained`.

    As with objects, type checkers don't see it.
    """

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            message = f"type object {cls.__name__!r} has no attribute {name!r}"
            if advice := attribute_advice(cls, name):
                message += f"; {advice}"
            raise AttributeError(message, name=name, obj=cls)


def explains_folder(
    loader: str,
) -> Callable[[Callable[Concatenate[Kind, P], None]], Callable[Concatenate[Kind, P], None]]:
    """Let the `__init__` of a class name the function that loads folders, if it is given only a path.

    Parameters
    ----------
    loader : str
        The name of that function, such as "minibert.load".

    Returns
    -------
    function
        A decorator for `__init__`, which then raises InputError for a single path.
    """

    def decorate(initialise: Callable[Concatenate[Kind, P], None]) -> Callable[Concatenate[Kind, P], None]:
        @functools.wraps(initialise)
        def checked(self: Kind, /, *args: P.args, **kwargs: P.kwargs) -> None:
            if len(args) == 1 and not kwargs and isinstance(args[0], str | os.PathLike):
                folder = os.fspath(args[0])
                call = f"{type(self).__name__}({folder!r})"
                raise InputError(f"{call} does not read a folder; use {loader}({folder!r}).")
            initialise(self, *args, **kwargs)

        return checked

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
        if foreign.value:
            shown = f'{option}="{foreign.value}"'
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
