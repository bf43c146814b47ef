"""Small questions in words of one piece each, and Google's way through windows, for several tests."""

from minibert.data.squad import Answer, Question
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = [f"w{number}" for number in range(200)]  # each of them one piece
PIECES = ["japanese", "shop", "##s", "日", "本", "語", "cafe", "the", "."]
TOKENIZER = Tokenizer([*SPECIAL_TOKENS, *WORDS, *PIECES])


def words(first, last):
    """A text of some of the words."""
    return " ".join(WORDS[first:last])


def asked(context, answer=None, *, id="q", question="w1 w2", start=None, impossible=None):
    """A question, with its answer's first place in the context unless another is said."""
    if answer is None:
        return Question(id, question, context, (), impossible)
    place = context.find(answer) if start is None else start
    return Question(id, question, context, (Answer(answer, place),), False)


def starts_of_loop(tokens, room, stride):
    """The windows of Google's loop, as it goes."""
    found, start = [], 0
    while start < tokens:
        length = min(tokens - start, room)
        found.append((start, length))
        if start + length == tokens:
            break
        start += min(length, stride)
    return found


def most_context_by_loop(found, token):
    """The rule for one token, as Google's code goes through the windows."""
    best, best_score = None, None
    for number, (start, length) in enumerate(found):
        end = start + length - 1
        if start <= token <= end:
            score = min(token - start, end - token) + 0.01 * length
            if best_score is None or score > best_score:
                best, best_score = number, score
    return best
