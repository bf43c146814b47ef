"""Sentences to hidden states by Hugging Face's `BertModel`."""

import numpy as np
import torch
import transformers

from minibert import engines
from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from peers.train_pytorch import load_weights
from peers.work import Rectangle


class PyTorch:
    """scaled_dot_product_attention under inference_mode; in bfloat16 the weights are so, too.

    In int8 linear layers are quantised dynamically.
    """

    def __init__(
        self,
        config: BertConfig,
        batch: Batch,
        flat: np.ndarray,
        threads: int,
        dtype: str,
        compiled: bool = False,
    ) -> None:
        engines.keep_freed_memory()
        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        whole = transformers.BertForPreTraining(transformers.BertConfig(**config.to_dict()))
        load_weights(whole, config, flat)
        model = whole.bert.eval()
        if dtype == "int8":
            model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)
        else:
            model = model.to(getattr(torch, dtype))
        self._model = torch.compile(model, fullgraph=True) if compiled else model
        padded = Rectangle.of(batch)
        self._real = padded.real
        self._inputs = {
            "input_ids": torch.from_numpy(padded.input_ids),
            "token_type_ids": torch.from_numpy(padded.token_type_ids),
        }
        if padded.has_padding:
            self._inputs["attention_mask"] = torch.from_numpy(padded.real.astype(np.int64))

    def run(self) -> transformers.modeling_outputs.BaseModelOutputWithPoolingAndCrossAttentions:
        with torch.inference_mode():
            return self._model(**self._inputs)

    # -> (T,H) (S,H)
    def result(self) -> tuple[np.ndarray, np.ndarray]:
        out = self.run()
        return out.last_hidden_state.float().numpy()[self._real], out.pooler_output.float().numpy()
