"""The paper's tables, each at a declared scale; and runs compared side by side.

Read `tables` first: what each table varies and claims. `runner` trains its `cells` by the rooms `pretraining`
and `finetuning`, `verdicts` judges the results, and `page` writes them; `comparison` is for any two runs.
"""
