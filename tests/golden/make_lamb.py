"""Writes lamb.json: fifty updates by optax's LAMB in double precision.

    python tests/golden/make_lamb.py

Run it with jax and optax installed. `every` scales every tensor, as `optax.lamb` does; `weights` leaves some
tensors out of weight decay and of the scaling, as the code of LAMB's authors does with LayerNorm and biases.
"""

import json
from pathlib import Path

import jax
import numpy as np
import optax

STEPS = 50
SIZES = (35, 7, 12, 1, 6, 9)
ZERO_AT_FIRST = 2  # no length to begin with
LEFT_OUT = (1, 4)
LARGEST = (2000, 9, 300, 50, 5000, 40)  # of a tensor's gradients, in thousandths
GIVEN = {"b1": 0.9, "b2": 0.98, "eps": 1e-6}
DECAY = 0.03


def trajectory(optimizer, params, gradients):
    """Parameters after the first, tenth and last update, and the moments then."""
    state, found = optimizer.init(params), {}
    for step, gradient in enumerate(gradients, 1):
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        if step in (1, 10, STEPS):
            found[str(step)] = np.concatenate(params).tolist()
    moments = state[0]
    return found | {"m": np.concatenate(moments.mu).tolist(), "v": np.concatenate(moments.nu).tolist()}


def main():
    """Write the table beside this script."""
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(20200423)
    ends = np.cumsum(SIZES)
    flat = rng.integers(-999, 1000, ends[-1]) / 1000
    flat[ends[ZERO_AT_FIRST - 1] : ends[ZERO_AT_FIRST]] = 0
    spread = np.repeat(LARGEST, SIZES)
    thousandths = rng.integers(-spread, spread + 1, (STEPS, ends[-1]))
    rates = [round(0.05 * min(step / 10, (STEPS + 1 - step) / 41), 6) for step in range(1, STEPS + 1)]

    def split(buffer):
        return np.split(buffer, ends[:-1])

    def rate(count):
        return jax.numpy.asarray(rates)[count]

    kept = [number not in LEFT_OUT for number in range(len(SIZES))]
    every = optax.lamb(rate, **GIVEN, weight_decay=DECAY)
    weights = optax.chain(
        optax.scale_by_adam(**GIVEN),
        optax.masked(optax.chain(optax.add_decayed_weights(DECAY), optax.scale_by_trust_ratio()), kept),
        optax.scale_by_learning_rate(rate),
    )
    params, gradients = split(flat), [split(row / 1000) for row in thousandths]
    table = {
        "begins": [0, *ends.tolist()],
        "left_out": LEFT_OUT,
        "given": {"beta1": GIVEN["b1"], "beta2": GIVEN["b2"], "eps": GIVEN["eps"], "weight_decay": DECAY},
        "rates": rates,
        "params": flat.tolist(),
        "every": trajectory(every, params, gradients),
        "weights": trajectory(weights, params, gradients),
        "thousandths": thousandths.tolist(),
    }
    parts = [f'"{name}": {json.dumps(part, separators=(",", ":"))}' for name, part in table.items()]
    text = "{" + ",\n".join(parts) + "}\n"
    (Path(__file__).parent / "lamb.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
