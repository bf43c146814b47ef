"""Misuses of the command line: what people get wrong, or know from elsewhere."""

import io
import shlex
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

from minibert import cli

TUNE = "--data SST-2 --model model --out new --quiet --engine numpy"
OWN = "--model model --out new --quiet --engine numpy"
MISUSES = f"""
minibert
minibert finetun sst2 {TUNE}
minibert train corpus.txt
minibert encode 'the film'
minibert -v
minibert version
minibert help pretrain
minibert search 'the film'
minibert fill 'the [MASK]'
minibert ner 'the film'
minibert --model tuned classify 'the film'
minibert finetune sts2 {TUNE}
minibert finetune SST2 {TUNE}
minibert finetune squad {TUNE}
minibert finetune sentiment {TUNE}
minibert finetune reviews.csv {OWN}
minibert finetune classify reviews.csv {OWN}
minibert finetune {TUNE}
minibert finetune sst2 --data SST-2 --model model
minibert finetune sst2 --data missing --model model --out new --quiet
minibert finetune sst2 --data RTE --model model --out new --quiet
minibert finetune sst2 --data SST-2 --model missing --out new --quiet
minibert finetune sst2 --data SST-2 --model bert-base-uncased --out new --quiet
minibert finetune sst2 --data SST-2 --model SST-2 --out new --quiet
minibert finetune sst2 --data SST-2 --model gpt --out new --quiet
minibert finetune sst2 --data SST-2 --model other_shape --out new --quiet
minibert finetune sst2 --data SST-2 --model no_vocabulary --out new --quiet
minibert finetune sst2 --data SST-2 --model pretrained@99 --out new --quiet
minibert finetune sst2 --data SST-2 --model model --out tuned --quiet
minibert finetune sst2 {TUNE} --learning-rate 5e-5
minibert finetune sst2 {TUNE} --learning_rate 5e-5
minibert finetune sst2 {TUNE} --num_train_epochs 3
minibert finetune sst2 {TUNE} --per_device_train_batch_size 32
minibert finetune sst2 {TUNE} --max_seq_length 128
minibert finetune sst2 {TUNE} --batchsize 8
minibert finetune sst2 {TUNE} --fp16
minibert finetune sst2 {TUNE} --learning_rate 5e-5 --per_device_train_batch_size 32
minibert finetune sst2 {TUNE} --lr 1e-3 1e-4
minibert finetune sst2 {TUNE} --lr fast
minibert finetune sst2 {TUNE} --lr 0
minibert finetune sst2 {TUNE} --lr=-1e-5
minibert finetune sst2 {TUNE} --epochs three
minibert finetune sst2 {TUNE} --epochs 0
minibert finetune sst2 {TUNE} --batch-size 0
minibert finetune sst2 {TUNE} --batch-size 1.5
minibert finetune sst2 {TUNE} --batch-size 8,0
minibert finetune sst2 {TUNE} --seed=-1
minibert finetune sst2 {TUNE} --dropout 1
minibert finetune sst2 {TUNE} --warmup 100
minibert finetune sst2 {TUNE} --optimizer sgd
minibert finetune sst2 {TUNE} --dtype float16
minibert finetune sst2 {TUNE} --dtype bfloat16
minibert finetune sst2 {TUNE} --restarts 100000
minibert finetune sst2 {TUNE} --max-steps 5 --epochs 2,3
minibert finetune sst2 {TUNE} --max-length 512
minibert finetune sst2 {TUNE} --max-length 2
minibert finetune sst2 {TUNE} --freeze 12
minibert finetune sst2 {TUNE} --extend-positions 8
minibert finetune sst2 {TUNE} --feature-based last
minibert finetune sst2 {TUNE} --width 64
minibert finetune ner {TUNE} --feature-based last-four
minibert finetune ner {TUNE} --feature-based last --long windows
minibert finetune ner {TUNE} --feature-based last --freeze 1
minibert finetune ner {TUNE} --feature-based last --attention-dropout 0.1
minibert finetune sst2 {TUNE} --stride 4
minibert finetune sst2 {TUNE} --pool median --long windows
minibert finetune sst2 {TUNE} --long windows --stride 30 --max-length 16
minibert finetune sst2 {TUNE} --long truncate
minibert finetune swag --data swag {OWN} --long windows
minibert finetune sst2 {TUNE} --column text=sentence
minibert finetune sst2 {TUNE} --also mnli=RTE
minibert finetune sst2 {TUNE} --also mnli
minibert finetune sst2 {TUNE} --also-examples 5
minibert finetune sst2 {TUNE} --class-weights good=2
minibert finetune sst2 {TUNE} --class-weights good
minibert finetune ner {TUNE} --class-weights balanced
minibert finetune sst2 {TUNE} --sampling uniform
minibert finetune sst2 {TUNE} --sampling balanced --class-weights balanced
minibert finetune sst2 --data reviews.csv {OWN}
minibert finetune sst2 --data SST-2 --model model --out pretrained
minibert finetune sst2 {TUNE} --config pretrained/training.json
minibert finetune sst2 {TUNE} --split-dev 0.1
minibert finetune sst2 {TUNE} --split-dev 10
minibert finetune sst2 {TUNE} --config missing.json
minibert finetune sst2 {TUNE} --config settings.json
minibert finetune similar-pairs --data RTE {OWN} --batch-size 1
minibert finetune sst2 {TUNE} --devices 2
minibert finetune classify --data reviews.csv {OWN}
minibert finetune classify --data reviews.csv {OWN} --split-dev 0.01
minibert finetune classify --data no_label.csv {OWN} --split-dev 0.5
minibert finetune classify --data no_label.csv {OWN} --split-dev 0.5 --column label=stars
minibert finetune classify --data reviews.csv {OWN} --split-dev 0.5 --column review=text
minibert finetune classify --data reviews.csv {OWN} --split-dev 0.5 --column header=perhaps
minibert finetune classify --data reviews.csv {OWN} --split-dev 0.5 --column text=text --column text=label
minibert finetune classify --data short_row.csv {OWN} --split-dev 0.5
minibert finetune classify --data one_class.csv {OWN} --split-dev 0.5
minibert finetune classify --data empty.csv {OWN} --split-dev 0.5
minibert finetune classify --data broken.jsonl {OWN} --split-dev 0.5
minibert finetune classify --data films {OWN} --epochs 1 --batch-size 2
minibert finetune classify --data unlabelled {OWN}
minibert finetune classify --data one_file {OWN}
minibert finetune classify --data archive.csv {OWN} --split-dev 0.5
minibert finetune regress --data scores.csv {OWN} --split-dev 0.5
minibert finetune tag --data words.txt {OWN} --split-dev 0.5
minibert finetune --resume --out missing
minibert finetune --resume --out pretrained
minibert finetune --resume --out tuned --lr 1e-3
minibert finetune --resume --out tuned --batch-size 8 --epochs 5 --optimizer paper
minibert finetune rte --resume --out tuned
minibert pretrain --train_file corpus.txt --out new_pretrained
minibert pretrain corpus.txt -o new_pretrained
minibert pretrain corpus.txt --out new_pretrained --vocab-file model/vocab.txt
minibert pretrain corpus.txt --out new_pretrained --num-layers 2
minibert pretrain corpus.txt --out new_pretrained --overwrite_output_dir
minibert pretrain corpus.txt --out new_pretrained --logging-steps 10
minibert pretrain corpus.txt --out new_pretrained --report-to wandb
minibert pretrain corpus.txt --out new_pretrained --verbose
minibert finetune --model_name_or_path model --task_name sst2
minibert finetune sst2 --data SST-2 --do_train --do_eval
minibert classify --model tuned --text 'the film is funny'
minibert classify --model tuned --input texts.txt
minibert pretrain missing.txt --out new_pretrained --quiet
minibert pretrain archive.zip --out new_pretrained --quiet
minibert pretrain one_document.txt --out new_pretrained --quiet
minibert pretrain corpus.txt --out pretrained --quiet
minibert pretrain corpus.txt --out new_pretrained --quiet --steps 0
minibert pretrain corpus.txt --out new_pretrained --quiet --steps 1e4
minibert pretrain corpus.txt --out new_pretrained --quiet --lr fast
minibert pretrain corpus.txt --out new_pretrained --quiet --epochs 3
minibert pretrain corpus.txt --out new_pretrained --quiet --hidden-size 128 --num-hidden-layers 2
minibert pretrain corpus.txt --out new_pretrained --quiet --engine cuda
minibert pretrain corpus.txt --out new_pretrained --quiet --device cuda
minibert pretrain corpus.txt --out new_pretrained --quiet --optimizer adam
minibert pretrain corpus.txt --out new_pretrained --quiet --steps 5 --minutes 5
minibert pretrain corpus.txt --out new_pretrained --quiet --size huge
minibert pretrain corpus.txt --out new_pretrained --quiet --size 2-100-3
minibert pretrain corpus.txt --out new_pretrained --quiet --size bert-base-uncased
minibert pretrain corpus.txt --out new_pretrained --quiet --seq-length 2
minibert pretrain corpus.txt --out new_pretrained --quiet --seq-length 16:0.4,32:0.4
minibert pretrain corpus.txt --out new_pretrained --quiet --config corpus.txt
minibert pretrain corpus.txt --out new_pretrained --quiet --vocab-size 3
minibert pretrain corpus.txt --out new_pretrained --quiet --mask-rates 0.8,0.1
minibert pretrain corpus.txt --out new_pretrained --quiet --masked-lm-prob 15
minibert pretrain corpus.txt --out new_pretrained --quiet --left-to-right --whole-word-mask
minibert pretrain corpus.txt --out new_pretrained --quiet --seq-length 1024 --max-positions 512
minibert pretrain corpus.txt --out tuned --quiet
minibert pretrain corpus.txt --shards shards --out new_pretrained --quiet
minibert pretrain --out pretrained --resume --quiet --batch-size 4
minibert pretrain --out missing --resume --quiet
minibert evaluate --model tuned --data SST-2 --split test
minibert evaluate --model tuned --data SST-2 --split validation
minibert evaluate --model tuned corpus.txt
minibert evaluate --model tuned --task rte
minibert evaluate --model model
minibert evaluate --model tuned pretrained
minibert evaluate --model pretrained corpus.txt --data SST-2
minibert predict --model tuned --data missing --out answers
minibert predict --model tuned --out answers 'the film is funny'
minibert predict --model tuned --out answers reviews.csv
minibert predict --model tuned --data=my data.csv --out answers
minibert predict --model pretrained --data SST-2 --out answers
minibert predict --model tuned --data SST-2 --out answers.csv
minibert predict --model tuned --data SST-2 --out tuned
minibert classify --model tuned ''
minibert classify --model tuned texts.txt
minibert classify --model tuned --file missing.txt
minibert classify --model tuned 'the film is funny' 'it is warm'
minibert classify --model tuned one two three
minibert classify --model tuned --data reviews.csv
minibert classify --model model 'the film is funny'
minibert classify --model tuned 'the film is funny' --classes good,bad
minibert classify --model tuned 'the film is funny' --template 'It is {{}}.'
minibert classify --model tuned 'the film is funny' --classes good --template nothing
minibert answer --model tuned 'who is it' 'the film is funny'
minibert answer --model tuned --question 'who is it' --context 'the film is funny'
minibert answer --model tuned 'who is it' 'the film is funny' --top 1000
minibert tag --model tuned 'the film is funny'
minibert tag --model tuned ''
minibert fill-mask --model model 'the film is funny'
minibert fill-mask --model englsh 'the film is [MASK]'
minibert fill-mask --model tuned 'the film is [MASK]'
minibert fill-mask --model model 'the film is [MASK]' --top 0
minibert fill-mask --model model 'the film is [MASK]' --targets zebra
minibert fill-mask --model model 'the film is [MASK]' --targets funny,
minibert fill-mask --model model 'the film is [MASK]' --targets funny --pieces 2
minibert fill-mask --model model 'the film is [MASK]' --threads 0
minibert score-text --model tuned 'the film is funny'
minibert score-text model
minibert score-text --model model texts.txt
minibert features --model model 'the film is funny' --out vectors.csv
minibert features --model model 'the film is funny' --out vectors.npy --layers 9
minibert features --model model 'the film is funny' --out vectors.npy --pool median
minibert features --model model 'the film is funny' --out vectors.npy --pool pooled --layers 1
minibert features --model model 'the film is funny' --out vectors.npy --max-length 1
minibert tokenize .
minibert tokenize 'the film' --vocab missing
minibert tokenize 'the film' --vocab corpus.txt
minibert tokenize 'the film' --vocab model/config.json
minibert tokenize 'the film' --vocab model --max-length 1
minibert vocab corpus.txt
minibert vocab corpus.txt --out model
minibert vocab corpus.txt --out new_vocabulary --quiet --vocab-size 9
minibert vocab corpus.txt --out new_vocabulary --quiet --held-out 2
minibert data corpus.txt --out new_shards --quiet --part 3/2
minibert data corpus.txt --out new_shards --quiet --part 1/2
minibert data corpus.txt --out new_shards --quiet --seed=-1 --vocab model
minibert compare tuned
minibert compare tuned pretrained
minibert compare tuned model
minibert compare tuned tuned
minibert verify
minibert verify nowhere
minibert verify pretrained --replay 99
minibert verify pretrained --replay first
minibert verify tuned --replay 1
minibert export --model tuned --out model
minibert export --model tuned --out exported --format onnx
minibert export --model tuned --out exported --format tensorflow --onnx
minibert extend --model model --out extended
minibert extend --model model --out extended --words missing.txt
minibert extend --model model --out extended --words reviews.csv
minibert score squad gold.json answers.json
minibert score squad missing.json answers.json
minibert score conll words.txt
minibert show missing --out page.html
minibert reproduce table9 --out tables
minibert reproduce table1 --out tables --seeds 0
minibert reproduce table5 --out tables --model model
minibert gradcheck --operation softmaxx
minibert gradcheck --seed=-1
minibert course tuned/../SST-2/train.tsv
minibert course grade nobody --seed 1 --csv marks.csv
minibert course grade tuned --seed 1 --csv marks.csv
minibert course grade tuned --csv marks.csv
minibert course lessons --csv marks.csv
minibert course notes 99

""".strip().split("\n")


def cases() -> dict[str, Callable[[], str]]:
    """Return the misuses, by what is typed."""
    return {f"$ {line}": lambda line=line: told(line) for line in MISUSES}


def told(line: str) -> str:
    """Run a command; return its error stream and exit status.

    Parameters
    ----------
    line : str
        As it is typed.

    Returns
    -------
    str
    """
    errors = io.StringIO()
    with redirect_stderr(errors), redirect_stdout(io.StringIO()):
        try:
            status = cli.main(shlex.split(line)[1:])
        except SystemExit as stop:
            status = stop.code
    return f"{errors.getvalue()}exit status {status}"
