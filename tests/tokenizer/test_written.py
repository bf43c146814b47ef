"""What is said of special tokens that stand in a text, and that the advice does what it says."""

import json

import pytest

from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer
from minibert.tokenizer.written import WrittenTokens


def test_the_advice_reads_letters_from_a_folder(tmp_path, recwarn):
    Tokenizer([*SPECIAL_TOKENS, "a", "[", "]", "sep"]).save_pretrained(tmp_path)

    def warned():
        tokenizer = Tokenizer.from_pretrained(tmp_path)
        written = WrittenTokens(tokenizer)
        written.add(tokenizer(["a [SEP]", "[SEP] [MASK]"]))
        written.warn()
        return tokenizer.tokenize("a [SEP]")

    setting = '"split_special_tokens": true'
    told = (
        r"^The text has 3 special tokens written out: \[SEP\] \(2\), \[MASK\] \(1\)\. Each is read as the "
        r"model's own, as transformers reads it\. To read letters, begin with a folder of a model, or of "
        rf"`minibert vocab`, whose tokenizer_config\.json has {setting}\.$"
    )
    with pytest.warns(UserWarning, match=told):
        assert warned() == ["a", "[SEP]"]
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | json.loads(f"{{{setting}}}")))
    assert warned() == ["a", "[", "sep", "]"]
    assert not recwarn.list
