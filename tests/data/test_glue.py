"""Readers of GLUE and of its stand-ins: every layout, counts and content of the real files, bad input."""

import csv
import gzip
import lzma
import zlib
from collections import Counter

import pytest
from real_data import FIXTURES, real_data

from minibert.base.errors import InputError
from minibert.data import glue, stand_ins as pairs
from minibert.data.glue import TASKS, TextExample

QUESTIONS = "index|question|sentence|label\n"
SENTENCES = "index|sentence1|sentence2|label\n"
LETTERS = {"entailment": "e", "neutral": "n", "contradiction": "c"}


def write(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text.replace("|", "\t").encode())
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    "task, folder, counts",
    [
        ("sst2", "SST-2", (67349, 872, 1821)),
        ("mrpc", "MRPC", (3668, 408, 1725)),
        ("cola", "CoLA", (8551, 1043, 1063)),
        ("rte", "RTE", (2490, 277, 3000)),
        ("stsb", "STS-B", (5749, 1500, 1379)),
        ("wnli", "WNLI", (635, 71, 146)),
        ("qnli", "QNLI", (None, 5463, 5463)),
    ],
)
def test_real_files_have_the_official_counts_and_the_cells_of_an_independent_reader(task, folder, counts):
    home = real_data(f"glue/{folder}")
    spec = TASKS[task]
    for split, count in zip(("train", "dev", "test"), counts, strict=True):
        if count is None:
            continue
        found = glue.read(task, home, split)
        names = spec.bare if split != "test" and spec.bare else None
        with open(home / f"{split}.tsv", encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, names, delimiter="\t", quoting=csv.QUOTE_NONE))
        assert len(found) == count
        assert [example.first for example in found] == [row[spec.sentences[0]] for row in rows]
        assert [example.second for example in found] == [
            row[spec.sentences[1]] if spec.pair else None for row in rows
        ]
        labels = [example.label for example in found]
        if split == "test":
            assert set(labels) == {None}
            assert [example.id for example in found] == [row["index"] for row in rows]
        elif task == "stsb":
            assert labels == [float(row["score"]) for row in rows]
        else:
            assert labels == [row[spec.label] for row in rows]


@pytest.mark.parametrize(
    "task, split, counts",
    [
        ("mrpc", "train", {"0": 1194, "1": 2474}),
        ("cola", "train", {"0": 2528, "1": 6023}),
        ("rte", "train", {"entailment": 1249, "not_entailment": 1241}),
        ("qnli", "dev", {"entailment": 2702, "not_entailment": 2761}),
    ],
)
def test_real_labels_are_as_many_as_counted_in_the_files(task, split, counts):
    found = glue.read(task, real_data("glue"), split)
    assert Counter(example.label for example in found) == counts


@pytest.mark.thorough
def test_real_rows_first_last_and_odd():
    home = real_data("glue")
    sst2 = glue.read("sst2", home, "train")
    assert sst2[0] == TextExample("0", "hide new secretions from the parental units ", None, "0")
    assert sst2[-1].id == "67348" and sst2[-1].first.startswith("this new jangle of noise ,")
    assert glue.read("sst2", home, "dev")[-1].first.endswith("could not be improved upon . ' ")
    cola = glue.read("cola", home, "dev")  # its last line has no end
    assert cola[-1] == TextExample("1042", "John talked to Bill about himself.", None, "1")
    assert glue.read("cola", home, "train")[3056].first == 'Susan whispered "Shut up".'
    mrpc = glue.read("mrpc", home, "dev")[0]
    assert mrpc.id == "1355540-1355592" and mrpc.label == "1"
    assert mrpc.second.startswith('" The foodservice pie business') and mrpc.second.count('"') == 1
    stsb = glue.read("stsb", home, "train")
    assert stsb[7].label == 1.6 and stsb[-1].label == 0.0 and stsb[-1].id == "5748"
    assert stsb[2001].first == '"Then the captain was gone.'
    assert glue.read("rte", home, "test")[-1].id == "2999"
    wnli = glue.read("wnli", home, "dev")[1]
    assert wnli == TextExample(
        "1", "Jane knocked on Susan's door but she did not answer.", "Susan did not answer.", "1"
    )


def test_real_mrpc_as_microsoft_packs_it_is_the_same_once_divided(tmp_path):
    home = real_data("glue/MRPC")
    for name in ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt"):
        (tmp_path / name).write_bytes((home / name).read_bytes())
    with pytest.warns(UserWarning, match=r"no dev_ids.tsv: every pair of msr_paraphrase_train.txt is train"):
        assert len(glue.read("mrpc", tmp_path, "train")) == 4076
    with pytest.raises(InputError, match=r"no dev.tsv, and no dev_ids.tsv"):
        glue.read("mrpc", tmp_path, "dev")
    dev = glue.read("mrpc", home, "dev")
    (tmp_path / "dev_ids.tsv").write_text("".join(f"{pair.id}\n".replace("-", "\t") for pair in dev))
    assert sorted(glue.read("mrpc", tmp_path, "dev")) == sorted(dev)
    assert sorted(glue.read("mrpc", tmp_path, "train")) == sorted(glue.read("mrpc", home, "train"))
    sentences = [(pair.first, pair.second, pair.label) for pair in glue.read("mrpc", tmp_path, "test")]
    assert sentences == [(pair.first, pair.second, None) for pair in glue.read("mrpc", home, "test")]


def test_mnli_takes_the_gold_label_and_not_those_of_single_people():
    train = glue.read("mnli", FIXTURES / "MNLI", "train")
    assert "".join(LETTERS[example.label] for example in train) == "enccen"
    assert train[3] == TextExample(
        "3", "uh-huh yeah i don't own a \"boat", "My boat is blue.", "contradiction"
    )
    assert glue.read("mnli-mm", FIXTURES, "train") == train
    matched = glue.read("mnli", FIXTURES, "dev")
    assert "".join(LETTERS[example.label] for example in matched) == "nce"
    assert matched[0].second == "The letter was long."
    mismatched = glue.read("mnli-mm", FIXTURES, "dev")
    assert "".join(LETTERS[example.label] for example in mismatched) == "ec"
    assert [example.label for example in glue.read("mnli", FIXTURES, "test")] == [None, None]
    assert glue.read("mnli-mm", FIXTURES, "test") == [
        TextExample("9847", "Words change their meaning.", "Meanings change.", None)
    ]


def test_qqp_leaves_out_rows_that_a_line_end_broke_and_counts_them():
    with pytest.warns(UserWarning, match=r"2 of 7 rows lack columns and are left out, the first in line 5\."):
        train = glue.read("qqp", FIXTURES, "train")
    assert [(example.id, example.label) for example in train] == [
        ("1001", "1"), ("1002", "0"), ("1003", "1"), ("1005", "1"), ("1006", "0"),
    ]  # fmt: skip
    assert train[2].first == '"How far is the moon?'
    assert train[3].second == 'What is the meaning of "etc."?'
    assert [example.label for example in glue.read("qqp", FIXTURES, "dev")] == ["1", "0", "1"]
    assert glue.read("qqp", FIXTURES, "test")[1] == TextExample(
        "1", 'How do I tune a "ukulele"?', "Who invented the ukulele?", None
    )


def test_qnli_and_the_diagnostic_set():
    train = glue.read("qnli", FIXTURES, "train")
    assert [example.label[0] for example in train] == ["e", "n", "e", "n"]
    assert train[1].second == 'Its lower valley is known for wild "Aln" daffodils.'
    found = glue.read("ax", FIXTURES, "test")
    assert [example.id for example in found] == ["0", "1", "2"]
    assert found[2] == TextExample("2", "All of the runners finished.", "Some of the runners finished.", None)
    with pytest.raises(InputError, match="AX has no split 'dev', only test"):
        glue.read("ax", FIXTURES, "dev")


def test_layouts_of_the_other_tasks(tmp_path):
    write(tmp_path / "cola", "train.tsv", 'gj04|1||A "cat sat.\nks08|0|*|Sat a cat.\n')
    write(tmp_path / "cola", "test.tsv", "index|sentence\n0|Dogs bark.\n")
    assert glue.read("cola", tmp_path, "train") == [
        TextExample("0", 'A "cat sat.', None, "1"),
        TextExample("1", "Sat a cat.", None, "0"),
    ]
    assert glue.read("cola", tmp_path, "test") == [TextExample("0", "Dogs bark.", None, None)]
    write(tmp_path / "STS_B", "dev.tsv", "\n".join([
        "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2|score",
        "7|main-news|headlines|2016|0|none|none|Rain falls.|It rains.|4.250",
    ]))  # fmt: skip
    assert glue.read("stsb", tmp_path, "dev") == [TextExample("7", "Rain falls.", "It rains.", 4.25)]
    write(
        tmp_path / "MRPC", "dev.tsv", "\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String\r\n1|5|6|A b .|B a .\r\n"
    )
    write(tmp_path / "MRPC", "test.tsv", "index|#1 ID|#2 ID|#1 String|#2 String\n3|5|6|A b .|B a .\n")
    assert glue.read("mrpc", tmp_path, "dev") == [TextExample("5-6", "A b .", "B a .", "1")]
    assert glue.read("mrpc", tmp_path, "test") == [TextExample("3", "A b .", "B a .", None)]


def test_compressed_files_and_odd_line_ends_read_alike(tmp_path):
    text = "index\tquestion\tsentence\tlabel\n0\tIs it?\tIt is,\u2028they\x0bsay.\tentailment\n"
    expected = [TextExample("0", "Is it?", "It is,\u2028they\x0bsay.", "entailment")]
    for name, data in (
        ("dev.tsv", text.replace("\n", "\r\n").encode("utf-8-sig")),
        ("dev.tsv.gz", gzip.compress(text.encode())),
        ("dev.tsv.xz", lzma.compress(text.encode())),
    ):
        (tmp_path / name).write_bytes(data)
        assert glue.read("qnli", tmp_path, "dev") == expected
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    "task, text, sentence",
    [
        ("sst2", QUESTIONS + "0|a|b|entailment\n", r"line 2: the label of SST-2 is one of 0, 1"),
        ("rte", "sentence|label\nfine|1\n", "not the dev file of RTE: it has no column sentence1, "
         "sentence2, its header is sentence, label; check the task and the folder"),
        ("qnli", SENTENCES + "0|a|b|entailment\n", r"has no column question, sentence, its header"),
        ("wnli", SENTENCES + "0|a|b|entailment\n", r"line 2.*one of 0, 1, not 'entailment'"),
        ("cola", "sentence|label\nfine|1\n", r"line 1: 2 columns between tabs, not the 4 of CoLA"),
        ("cola", QUESTIONS, r"line 1: the label of CoLA is one of 0, 1, not 'question'"),
        ("sst2", "sentence|label\nfine|1\n\nbad\n", r"line 4: 1 column between tabs, not the 2"),
        ("stsb", "sentence1|sentence2|score\na|b|5.5\n", r"line 2.*a number from 0 to 5, not '5.5'"),
        ("stsb", "sentence1|sentence2|score\na|b|nan\n", r"line 2.*a number from 0 to 5, not 'nan'"),
        ("stsb", "sentence1|sentence2|score\na|b|\n", r"line 2.*a number from 0 to 5, not ''"),
        ("sst2", "sentence|label\n", r"has a header and no rows"),
        ("sst2", "", r"has no column sentence, label, its header is empty"),
        ("qqp", "id|question1|question2|is_duplicate\n1|a|b|c|1\n", r"line 2: 5 columns"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_with_its_place(tmp_path, task, text, sentence):
    with pytest.raises(InputError, match=sentence):
        glue.read(task, write(tmp_path, "dev.tsv", text), "dev")


def test_missing_files_and_unknown_names_are_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"no dev_matched.tsv in .* nor in a folder MNLI-m or MNLI inside it"
    ):
        glue.read("mnli", tmp_path, "dev")
    with pytest.raises(
        InputError, match=r"There is no folder '.*nowhere'; name the folder with the files of RTE"
    ):
        glue.read("rte", tmp_path / "nowhere", "dev")
    with pytest.raises(InputError, match=r"task='imdb' is not one of GLUE's; choose from cola, sst2"):
        glue.read("imdb", tmp_path, "dev")
    with pytest.raises(InputError, match=r"split='validation' is unknown; choose from train, dev, test"):
        glue.read("rte", tmp_path, "validation")


def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path):
    (tmp_path / "dev.tsv").write_bytes(b"sentence\tlabel\nfine\t1\ncaf\xe9\t1\n")
    with pytest.raises(InputError, match=r"dev.tsv, line 3 is not UTF-8: byte 0xe9; convert"):
        glue.read("sst2", tmp_path, "dev")


def test_a_file_cut_within_a_row_is_refused(tmp_path):
    data = gzip.compress(b"sentence\tlabel\n" + b"fine\t1\n" * 1000)
    (tmp_path / "dev.tsv.gz").write_bytes(data[:-9])
    with pytest.raises(InputError, match="damaged or cut short"):
        glue.read("sst2", tmp_path, "dev")


def test_every_task_knows_its_head_and_its_metrics():
    assert {name: len(task.labels) for name, task in TASKS.items()} == {
        "cola": 2, "sst2": 2, "mrpc": 2, "stsb": 0, "qqp": 2, "mnli": 3, "mnli-mm": 3, "qnli": 2, "rte": 2,
        "wnli": 2, "ax": 3,
    }  # fmt: skip
    assert [name for name, task in TASKS.items() if not task.pair] == ["cola", "sst2"]
    assert TASKS["mrpc"].metrics == TASKS["qqp"].metrics == ("f1", "accuracy")
    assert TASKS["stsb"].metrics[0] == "spearman" and TASKS["cola"].metrics == ("matthews",)


@pytest.mark.parametrize(
    "name, split, count, labels",
    [
        ("quora", "train", 10000, {"0": 5000, "1": 5000}),
        ("quora", "dev", 10000, {"0": 5000, "1": 5000}),
        ("snli", "train", 9824, {"entailment": 3368, "neutral": 3219, "contradiction": 3237}),
        ("snli", "dev", 9842, {"entailment": 3329, "neutral": 3235, "contradiction": 3278}),
        ("scitail", "train", 2126, {"entailment": 842, "not_entailment": 1284}),
        ("scitail", "dev", 1304, {"entailment": 657, "not_entailment": 647}),
        ("sick", "train", 4500, {"entailment": 1299, "neutral": 2536, "contradiction": 665}),
        ("sick", "dev", 500, None),
        ("sick", "test", 4927, None),
    ],
)
@pytest.mark.filterwarnings("ignore:.*bimpm_")
def test_real_stand_ins_have_their_counts_and_the_labels_of_the_task(name, split, count, labels):
    found = pairs.read(name, real_data("pairs"), split)
    assert len(found) == count
    counted = Counter(example.label for example in found)
    assert labels is None or counted == labels
    assert set(counted) <= set(TASKS[pairs.STAND_INS[name].task].labels)
    assert all(example.first and example.second for example in found)


def test_real_stand_ins_first_and_last_rows():
    home = real_data("pairs")
    with pytest.warns(UserWarning, match=r"bimpm_dev.tsv: bytes of 83 pairs are not UTF-8 and are read as"):
        quora = pairs.read("quora", home, "dev")
    assert quora[2].second.endswith("\u2018need to improve\ufffd?")
    assert (quora[0].id, quora[0].label) == ("18", "1")
    assert quora[0].first.startswith("Why are so many Quora users")
    assert quora[-1].second == "How do I reset a Toshiba laptop?"
    snli = pairs.read("snli", home, "dev")
    assert [example.label for example in snli[:3]] == ["neutral", "entailment", "contradiction"]
    assert snli[2].second == "the men are fighting outside a deli"
    assert pairs.read("scitail", home, "dev")[1].label == "entailment"
    sick = pairs.read("sick", home, "test")  # the one file with \r\n
    assert (sick[-1].id, sick[-1].label) == ("9996", "neutral")
    scores = pairs.read("sick-score", home, "train")
    assert (scores[0].id, scores[0].label, scores[-1].label) == ("1", 4.5, 1.0)


def test_real_qnli_is_divided_by_question():
    home = real_data("glue")
    train, dev = pairs.read("qnli", home, "train"), pairs.read("qnli", home, "dev")
    assert sorted(train + dev) == sorted(glue.read("qnli", home, "dev"))
    assert not {example.first for example in train} & {example.first for example in dev}
    assert 0.15 < len(dev) / 5463 < 0.25
    assert all(zlib.crc32(example.first.encode()) % 5 == 0 for example in dev)


def test_a_dev_file_too_small_to_be_divided_is_refused():
    assert len(pairs.read("qnli", FIXTURES, "dev")) == 2
    with pytest.raises(InputError, match="Of 2 examples none becomes train; too few to be divided"):
        pairs.read("qnli", FIXTURES, "train")


def test_pairs_without_an_agreed_label_are_left_out_and_counted(tmp_path):
    write(tmp_path, "dev.txt", "a man sits|a man stands|2\nit rains|it pours|-\na dog|an animal|0\n")
    with pytest.warns(UserWarning, match="left out 1 pair without a label"):
        found = pairs.read("snli", tmp_path, "dev")
    assert found == [
        TextExample("0", "a man sits", "a man stands", "contradiction"),
        TextExample("2", "a dog", "an animal", "entailment"),
    ]


def test_stand_ins_that_are_wrong_are_refused(tmp_path):
    write(tmp_path, "dev.txt", "a|b|3\n")
    write(tmp_path, "SICK_trial.txt", "pair_ID|Sentence_A|Sentence_B\n")
    write(tmp_path, "bimpm_dev.tsv", "1|a|b\n")
    for name, split, sentence in (
        ("snli", "dev", r"line 1: the label is one of 0, 1, 2, -, not '3'"),
        ("sick", "dev", r"has the header pair_ID, Sentence_A, Sentence_B, expected pair_ID, sentence_A"),
        ("quora", "dev", r"line 1: 3 columns between tabs, expected 4"),
        ("quora", "test", r"quora has no split 'test', only train, dev"),
        ("qnli", "test", r"qnli has no split 'test', only train, dev"),
        ("paws", "dev", r"name='paws' is not a stand-in; choose from quora, snli"),
    ):
        with pytest.raises(InputError, match=sentence):
            pairs.read(name, tmp_path, split)
