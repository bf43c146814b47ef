"""The files by which sentence-transformers makes vectors of texts from a folder of Hugging Face's."""

from pathlib import Path

from minibert.errors import InputError
from minibert.files import atomic_json
from minibert.hub.hugging_face import CONFIG_FILE
from minibert.json_files import read_json

POOLING = "1_Pooling"  # the folder of the module
POOLS = ("mean", "cls")  # what it has in common with `minibert features`


def write_modules(folder: str | Path, length: int, pool: str = "mean") -> None:
    """Write what tells sentence-transformers how to use the model of a folder (any version from 0.3 on).

    The folder is one of `save_hf`; `config.json` says how wide its vectors are. The longest text has `length`
    tokens, [CLS] and [SEP] included; longer texts lose their end. The pool is "mean" of all tokens, also of
    these two, or the last hidden state of "cls". Raise InputError when it is another one, the folder has no
    `config.json`, or the model can't read so many tokens.
    """
    folder = Path(folder)
    if pool not in POOLS:
        raise InputError(f"$pool is not sentence-transformers'; choose {' or '.join(POOLS)}.", pool=pool)
    config = read_json(folder / CONFIG_FILE, {"hidden_size": int, "max_position_embeddings": int})
    if not 2 <= length <= (most := config["max_position_embeddings"]):
        raise InputError(f"$length is not possible; give 2 to the model's {most} positions.", length=length)
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (path, kind) in enumerate((("", "Transformer"), (POOLING, "Pooling")))
    ]
    atomic_json(folder / "modules.json", modules)
    atomic_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    atomic_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    pooling = {f"pooling_mode_{one}": one.split("_")[0] == pool for one in ("cls_token", "mean_tokens")}
    width = {"word_embedding_dimension": config["hidden_size"]}
    atomic_json(folder / POOLING / "config.json", pooling | width)
