"""Google's folders of a BERT for TensorFlow, made by the writer of `bundle_writer`: something to be read."""

import json
import re

import bundle_writer
import numpy as np

from minibert import hub
from minibert.hub.hugging_face import fields_of

OUTPUTS = {
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
    "classifier.query": "output_query",
}


def google_name(name):
    """Google's name of one of Hugging Face's."""
    if name in OUTPUTS:
        return OUTPUTS[name]
    name = re.sub(r"\.layer\.(\d+)\.", r"/layer_\1/", name)
    name = re.sub(r"LayerNorm\.weight$", "LayerNorm/gamma", name)
    name = re.sub(r"LayerNorm\.bias$", "LayerNorm/beta", name)
    name = re.sub(r"_embeddings\.weight$", "_embeddings", name)
    return re.sub(r"\.weight$", "/kernel", name).replace(".", "/")


def google_tensors(params, omit=()):
    """The parameters as Google's code would have them, by its names; `omit` has Hugging Face's."""
    tensors = {}
    for name, value in hub.to_hf(params).items():
        if name not in omit:
            theirs = google_name(name)
            tensors[theirs] = np.ascontiguousarray(
                value.T if theirs.endswith("kernel") else value, np.float32
            )
    return tensors


def write(folder, config, params, labels=(), omit=()):
    """`bert_config.json` and `bert_model.ckpt.*`, with head and labels among the fields."""
    folder.mkdir(parents=True, exist_ok=True)
    bundle_writer.write(folder / "bert_model.ckpt", google_tensors(params, omit))
    fields = fields_of(config, params.head, labels, omit)
    (folder / "bert_config.json").write_text(json.dumps(fields))
