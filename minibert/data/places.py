"""Where to get the official files of tasks: minibert downloads nothing itself."""

_GLUE = "cola sst2 mrpc stsb qqp mnli mnli-mm qnli rte wnli ax qnli-dev stsb-similarity".split()
# The page of its authors, by the name of a task.
PLACES = {
    **dict.fromkeys(_GLUE, "https://gluebenchmark.com/tasks"),
    **dict.fromkeys(("squad1", "squad2"), "https://rajpurkar.github.io/SQuAD-explorer"),
    "triviaqa": "https://nlp.cs.washington.edu/triviaqa",
    **dict.fromkeys(("ner", "ner-sentences"), "https://www.clips.uantwerpen.be/conll2003/ner"),
    "swag": "https://rowanzellers.com/swag",
    **dict.fromkeys(("hellaswag", "hellaswag-dev"), "https://rowanzellers.com/hellaswag"),
    "copa": "https://super.gluebenchmark.com/tasks",
    "csqa": "https://www.tau-nlp.org/commonsenseqa",
    "snli": "https://nlp.stanford.edu/projects/snli",
    **dict.fromkeys(("sick", "sick-score"), "https://marcobaroni.org/composes/sick.html"),
    "scitail": "https://allenai.org/data/scitail",
}


def where_to_get(task: str) -> str:
    """Say where to get the files of a task, as the end of a sentence without its full stop.

    Parameters
    ----------
    task : str
        The name of a task.

    Returns
    -------
    str
        "" for tasks whose authors have no page.

    Examples
    --------
    >>> where_to_get("rte")
    '; if you have none yet, get them from https://gluebenchmark.com/tasks (minibert downloads nothing)'
    """
    if task not in PLACES:
        return ""
    return f"; if you have none yet, get them from {PLACES[task]} (minibert downloads nothing)"
