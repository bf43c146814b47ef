"""Records what Hugging Face's two BERT tokenizers do, as `tokenizer.json`, for tests that run without them.

Run `python tests/golden/make_tokenizer.py` with transformers and tokenizers installed. The texts are ours or
in the public domain. A text belongs here when both tokenizers agree on it with the word limit set to Google's
200; where they do not, see tests/oracle/test_tokenizer_oracle.py.
"""

import json
import unicodedata
from pathlib import Path

import tokenizers
import transformers
from tokenizers import models, normalizers, pre_tokenizers
from transformers.models.bert.tokenization_bert_legacy import BasicTokenizer, WordpieceTokenizer

from minibert.tokenizer import learn_vocab

TEXTS = [
    "It was the best of times, it was the worst of times, it was the age of wisdom.",
    "CALL me Ishmael. Some years ago--never mind how long precisely--having little or no money",
    "Mr. O'Brien's e-mail (x_y@z.org) cost $5.00^2 ~ 10% + tax; <b>`ok`</b> = {1|2}\\[3]",
    "Où est l'Été? Ça va, naïve façade, Ærøskøbing, İstanbul, straße, Łódź, Đà Nẵng",
    "Все счастливые семьи похожи друг на друга, ёж и йод.",
    "μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος",
    "子曰：「學而時習之，不亦說乎？」 abc中文def",
    "いづれの御時にか、女御、更衣あまたさぶらひたまひける中に、カタカナ",
    "나랏말싸미 듕귁에 달아 한글 words",
    "في البدء كان الكلمة، والكلمة كان عند الله؟",
    "בְּרֵאשִׁית בָּרָא אֱלֹהִים",
    "धर्मक्षेत्रे कुरुक्षेत्रे समवेता युयुत्सवः।",
    "ก่อนกาลครั้งหนึ่งนานมาแล้ว",
    "tab\tnew\nreturn\rnbsp\u00a0wide\u3000thin\u2009line\u2028para\u2029end",
    "zero\u200bwidth soft\u00adhyphen bom\ufeff nul\x00 bell\x07 vt\x0b ff\x0c us\x1f nel\x85 bad\ufffd",
    "emoji 😀👍🏽 family👨\u200d👩\u200d👧 flag🇫🇷 heart❤\ufe0f ½ ² € × ° № ™ …—–“”‘’«»¿¡",
    "x" * 199 + "y " + "x" * 200 + "y z",
    "[CLS] and [MASK] are not special here",
    "",
]


def main() -> None:
    texts = [unicodedata.normalize("NFC", text) for text in TEXTS]
    vocab = make_vocab(texts)
    records = []
    for text in texts:
        record = {"text": text}
        for case in ("uncased", "cased"):
            record[case] = " ".join(legacy_pieces(text, vocab, case == "uncased"))
            assert record[case] == " ".join(fast_pieces(text, vocab, case == "uncased")), text
        records.append(record)
    golden = {
        "made_with": f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}",
        "unicode": unicodedata.unidata_version,
        "vocab": vocab,
        "texts": records,
        "characters": character_runs(),
    }
    lines = ",\n".join(f'"{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in golden.items())
    (Path(__file__).parent / "tokenizer.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def make_vocab(texts: list[str]) -> list[str]:
    """Pieces for both cases; every seventh character is left out, so that there are unknown words."""
    counts: dict[str, int] = {}
    for lower in (True, False):
        for word in BasicTokenizer(do_lower_case=lower).tokenize(" ".join(texts)):
            if len(word) <= 200 and ord(word[-1]) % 7:
                counts[word] = counts.get(word, 0) + 1
    return learn_vocab(counts, 1200, min_frequency=1)


def legacy_pieces(text: str, vocab: list[str], lower: bool) -> list[str]:
    wordpiece = WordpieceTokenizer(set(vocab), "[UNK]", max_input_chars_per_word=200)
    words = BasicTokenizer(do_lower_case=lower).tokenize(text)
    return [piece for word in words for piece in wordpiece.tokenize(word)]


def fast_pieces(text: str, vocab: list[str], lower: bool) -> list[str]:
    ids = {piece: i for i, piece in enumerate(vocab)}
    fast = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=200))
    fast.normalizer = normalizers.BertNormalizer(lowercase=lower)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return fast.encode(text, add_special_tokens=False).tokens


def character_runs() -> list[list]:
    """Runs [first, last, uncased, cased] of code points that behave alike between an "a" and a "b".

    Characters that Unicode has not assigned, private ones and surrogates are left out: Hugging Face's Python
    code deletes them, Google's keeps them.
    """
    runs: list[list] = []
    for code in range(0x110000):
        if unicodedata.category(chr(code)) in ("Cn", "Co", "Cs"):
            continue
        found = [behaviour(chr(code), lower) for lower in (True, False)]
        if runs and runs[-1][1] == code - 1 and runs[-1][2:] == found:
            runs[-1][1] = code
        else:
            runs.append([code, code, *found])
    return runs


def behaviour(character: str, lower: bool) -> str:
    words = BasicTokenizer(do_lower_case=lower).tokenize(f"a{character}b")
    return "vanishes" if words == ["ab"] else ["joins", "splits", "alone"][len(words) - 1]


if __name__ == "__main__":
    main()
