"""Sentences to hidden states by `Bert.encode`, with any of minibert's engines."""

import numpy as np

from minibert import engines
from minibert.ask.inference import Bert, Encoded
from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.model.params import Parameters


class Minibert:
    """What a user calls; it returns the hidden states of every layer and the pooled vectors."""

    def __init__(
        self,
        config: BertConfig,
        batch: Batch,
        flat: np.ndarray,
        threads: int,
        engine: str,
        dtype: str = "float32",
    ) -> None:
        engines.keep_freed_memory()
        ops = engines.create(engine, threads, "bfloat16" if dtype == "int8" else dtype)
        self._limits = engines.limited_threads(threads, ops)
        self._model = Bert(config, Parameters(config, flat), ops)
        if engine == "cpp":  # as ONNX Runtime does by itself; other engines gain nothing
            self._model.optimize_for_inference(int8=dtype == "int8")
        self._batch = batch

    def run(self) -> Encoded:
        return self._model.encode(self._batch)

    # -> (T,H) (S,H)
    def result(self) -> tuple[np.ndarray, np.ndarray]:
        encoded = self.run()
        return encoded.hidden_states[-1], encoded.pooled
