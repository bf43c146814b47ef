"""Choose the tokens to predict in a sequence, and what the model sees instead (section 3.1 of the paper).

data/masking.py chooses positions in a hundred thousand sequences at once; a test holds it against this file.

Read next: `draws`, where the random bits come from, and `pairs`, which makes the sequences. `count`, which is
15% of the tokens, is computed by the caller: in `core/__main__.py` and in `data/instances.py`.
"""

import numpy as np

from minibert.core.draws import below, draw, uniform

MASKED, KEPT, RANDOM = 0.8, 0.1, 0.1  # shares of the chosen positions: [MASK], the same token, a random one
POSITION_BITS = 16  # sequences of up to 65,535 tokens
TICKET_BITS = 24  # the positions with the lowest tickets are chosen
# Where the counters of a sequence's draws begin: which positions, what to do there, which random token.
CHOICE, ACTION, TOKEN = (which << POSITION_BITS for which in range(3))


# candidates (C,) -> (count,), ascending
def choose_positions(key: int, candidates: np.ndarray, count: int) -> np.ndarray:
    """Choose `count` of the candidate positions, all equally likely; all of them if there are fewer.

    Parameters
    ----------
    key : key of the sequence, which determines the draws.
    candidates : (C,) positions that may be chosen, ascending.
    count : how many to choose.

    Returns
    -------
    (count,) positions, ascending.
    """
    bits = draw(key, CHOICE + candidates)
    tickets = bits >> (64 - TICKET_BITS)
    by_ticket = np.lexsort((candidates, tickets))  # equal tickets in the order of the text
    return np.sort(candidates[by_ticket[:count]])


# tokens positions (M,) -> (M,)
def replace_tokens(
    keys: int | np.ndarray,
    tokens: np.ndarray,
    positions: np.ndarray,
    mask_id: int,
    vocab_size: int,
    rates: tuple[float, float, float] = (MASKED, KEPT, RANDOM),
) -> np.ndarray:
    """Return what the model sees at the chosen positions: 80% [MASK], 10% the token itself, 10% a random one.

    A random token is any of the vocabulary, special ones and the original included.

    Parameters
    ----------
    keys : key of the sequence, as for `choose_positions`; or (M,), that of each token's sequence.
    tokens : (M,) ids at the chosen positions.
    positions : (M,) the chosen positions.
    mask_id, vocab_size : id of [MASK], and number of ids to draw from.
    rates : shares of [MASK], the same token, a random one; they add up to 1 (Table 8 varies them).

    Returns
    -------
    (M,) ids.
    """
    action = uniform(draw(keys, ACTION + positions))
    other = below(draw(keys, TOKEN + positions), vocab_size)
    masked, kept, _ = rates
    unmasked = np.where(action < masked + kept, tokens, other)
    return np.where(action < masked, mask_id, unmasked)
