"""Record the model of hf_tiny/ as torch.save writes it, in today's layout and in the older one.

    PYTHONPATH=. python tests/golden/make_pickled.py

The older layout names storages by where they lay in memory: its bytes change from run to run, its tensors do
not.

Needs torch and transformers (`make test-oracle` installs them). The tests that read the recording do not.
"""

from pathlib import Path

import torch
import transformers

HERE = Path(__file__).parent


def main() -> None:
    """Write both."""
    model = transformers.BertForPreTraining.from_pretrained(HERE / "hf_tiny")
    state = model.state_dict()
    torch.save(state, HERE / "hf_tiny.bin")
    torch.save(state, HERE / "hf_tiny_older.bin", _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    main()
