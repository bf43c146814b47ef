"""What programs call: `pretrain`, `finetune`, `load`, and estimators in scikit-learn's protocol.

Read `runs` for training in one call, then `base`, the class of all estimators, and `texts`, the first of
them. The work is done in `pretraining` and `finetuning`; here arguments are checked and data in memory read.
"""
