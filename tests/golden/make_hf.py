"""Record a tiny BERT of Hugging Face's and everything it computes: hf_tiny/ and hf_tiny.npz.

    PYTHONPATH=. python tests/golden/make_hf.py

The weights are those of hf_tiny/ where it is there, so that the recording can be made anew whatever
`initialise` draws today. make_pickled.py writes the same weights in other formats.

Needs torch and transformers (`make test-oracle` installs them). The tests that read the recording do not.
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "support")]

import agreement  # noqa: E402
import hugging_face  # noqa: E402
import torch  # noqa: E402

from minibert.core.config import BertConfig  # noqa: E402
from minibert.hub import load_hf  # noqa: E402
from minibert.model.batch import Batch  # noqa: E402
from minibert.model.params import Parameters  # noqa: E402

N_BATCHES, N_STEPS = 5, 50


def expected(theirs, batch: Batch) -> dict[str, np.ndarray]:
    """What the model makes of one batch."""
    longest = int(np.diff(batch.cu_seqlens).argmax())
    encoded = hugging_face.encode(theirs.bert, batch)
    mlm_logits, nsp_logits = hugging_face.logits(theirs, batch)
    loss, gradients = hugging_face.loss_and_gradients(theirs, batch)
    return {
        "hidden_states": np.stack(encoded.hidden_states),
        "longest_attention": np.stack([maps[longest] for maps in encoded.attentions]),
        "pooled": encoded.pooled,
        "mlm_logits": mlm_logits,
        "nsp_logits": nsp_logits,
        "loss": loss,
        **{f"gradient.{name}": gradient for name, gradient in gradients.items()},
    }


def weights(config: BertConfig) -> Parameters:
    """Those that are recorded; where there are none, new ones."""
    if (HERE / "hf_tiny").exists():
        return load_hf(HERE / "hf_tiny")[1]
    return agreement.parameters(config)


def main() -> None:
    """Write both."""
    config = agreement.config()
    theirs = hugging_face.model(config, weights(config))
    theirs.to(torch.float32).save_pretrained(HERE / "hf_tiny")
    theirs.double()
    batches = [agreement.batch(config, seed) for seed in range(N_BATCHES)]
    recorded = {
        f"batch{number}.{field}": value
        for number, batch in enumerate(batches)
        for field, value in dataclasses.asdict(batch).items()
    }
    recorded |= expected(theirs, batches[0])
    repeated = [batches[step % N_BATCHES] for step in range(N_STEPS)]
    recorded["losses"] = np.array(hugging_face.losses(theirs, repeated, **agreement.SCHEDULE))
    np.savez_compressed(HERE / "hf_tiny.npz", **recorded)


if __name__ == "__main__":
    main()
