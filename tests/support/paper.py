"""What the paper says, sentence by sentence, where it is in minibert, and a fault that a test has to find.

Devlin et al. 2019, sections 3 to 5 and appendices A to C. The list was taken from the paper's text before any
code was looked for, and rows without code stay in it. docs/equations.md is made of it.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """One equation, setting or claim.

    Attributes
    ----------
    number : section of the paper and a letter.
    paper : what it says, in its words or its formula.
    code : the function, class or constant that has it, "file.py:name" within minibert/; "" for none.
    test : what fails when it is broken, "file.py::name" within tests/.
    old, new : the fault: this piece of Python, once in `code`, becomes that; see `patterns.py`.
    note : where minibert differs or knows more than the paper says, or why there is no code.
    """

    number: str
    paper: str
    code: str = ""
    test: str = ""
    old: str = ""
    new: str = ""
    note: str = ""


SECTIONS = {
    "3": "BERT",
    "3.1": "Pre-training BERT",
    "3.2": "Fine-tuning BERT",
    "4": "Experiments",
    "4.1": "GLUE",
    "4.2": "SQuAD v1.1",
    "4.3": "SQuAD v2.0",
    "4.4": "SWAG",
    "5.1": "Effect of Pre-training Tasks",
    "5.2": "Effect of Model Size",
    "5.3": "Feature-based Approach with BERT",
    "A.1": "Illustration of the Pre-training Tasks",
    "A.2": "Pre-training Procedure",
    "A.3": "Fine-tuning Procedure",
    "A.4": "Comparison of BERT, ELMo and OpenAI GPT",
    "A.5": "Illustrations of Fine-tuning on Different Tasks",
    "B.1": "Detailed Descriptions for the GLUE Benchmark Experiments",
    "C.1": "Effect of Number of Training Steps",
    "C.2": "Ablation for Different Masking Procedures",
}

ROWS = (
    Row(
        "3-a", "“all of the parameters are fine-tuned using labeled data from the downstream tasks”",
        "core/bert.py:encoder_backward",
        "core/test_heads.py::test_frozen_layers_have_no_gradient_and_the_others_the_same_bits_as_"
        "ever[0-numpy-classify]",
        "if frozen is not None: ...", "if True: ...",
        note="`--freeze` leaves layers out, which the paper does not do.",
    ),
    Row(
        "3-b",
        "“Each downstream task has separate fine-tuned models”, all from “the same pre-trained parameters”",
        "finetuning/models.py:start_from",
        "finetuning/test_run.py::test_a_head_is_kept_for_the_same_thing_and_fresh_for_another",
        "head.outputs and not keeps_head(...)", "False",
    ),
    Row(
        "3-c", "“multi-layer bidirectional Transformer encoder”: L layers, one after another",
        "core/ops/blocks.py:Blocks.layers",
        "core/test_ops.py::test_layers_run_in_order_and_back_in_reverse",
        "enumerate(params)", "enumerate(params[:-1])",
    ),
    Row(
        "3-d", "attention, by reference to Vaswani et al.: softmax(QKᵀ/√d)V",
        "core/ops/attention.py:Attention._probabilities",
        "core/test_ops.py::test_attention_is_a_softmax_over_the_keys_of_the_same_sequence[both ways]",
        "1 / math.sqrt(q.shape[-1])", "1 / q.shape[-1]",
    ),
    Row(
        "3-e", "multi-head attention, likewise: A heads of H/A dimensions side by side, then projected",
        "core/ops/blocks.py:Blocks.attention_block",
        "core/test_ops.py::test_attention_block_is_a_residual_around_projected_attention[both ways]",
        "qkv.reshape(T, 3, config.A, config.D)", "qkv.reshape(T, 3, config.D, config.A).swapaxes(2, 3)",
    ),
    Row(
        "3-f", "residual and LayerNorm after attention, likewise: LayerNorm(x + Sublayer(x))",
        "core/ops/blocks.py:Blocks.attention_block",
        "core/test_ops.py::test_attention_block_is_a_residual_around_projected_attention[both ways]",
        "self.layer_norm(x + out, ...)", "self.layer_norm(out, ...)",
    ),
    Row(
        "3-g", "feed-forward sublayer, likewise: two linear maps, residual and LayerNorm",
        "core/ops/blocks.py:Blocks.feed_forward_block",
        "core/test_ops.py::test_feed_forward_block_is_a_residual_around_two_layers_with_gelu",
        "self.layer_norm(x + out, ...)", "self.layer_norm(out, ...)",
    ),
    Row(
        "3-h", "LayerNorm itself, likewise (Ba et al. 2016)",
        "core/ops/primitives.py:Primitives.layer_norm",
        "core/test_ops.py::test_layer_norm_rows_have_the_mean_and_spread_they_are_given",
        "(centred * centred).mean(-1, keepdims=True)",
        "(centred * centred).sum(-1, keepdims=True) / (x.shape[-1] - 1)",
    ),
    Row(
        "3-i", "“BERT-BASE (L=12, H=768, A=12, Total Parameters=110M)”",
        "core/config.py:SIZES",
        "core/test_params.py::test_sizes_have_the_layers_width_heads_and_feed_forward_of_the_"
        "paper[base-shape0]",
        '"base": (12, 768, 12)', '"base": (12, 768, 8)',
        note=(
            "Encoder and pooler have 109,482,240 parameters with the released vocabulary, which `test_"
            "params.py` counts too."
        ),
    ),
    Row(
        "3-j", "“BERT-LARGE (L=24, H=1024, A=16, Total Parameters=340M)”",
        "core/config.py:SIZES",
        "core/test_params.py::test_encoder_and_pooler_have_the_published_number_of_"
        "parameters[large-335141888]",
        '"large": (24, 1024, 16)', '"large": (23, 1024, 16)',
    ),
    Row(
        "3-k", "“we set the feed-forward/filter size to be 4H”",
        "core/config.py:BertConfig.from_size",
        "core/test_params.py::test_sizes_have_the_layers_width_heads_and_feed_forward_of_the_"
        "paper[large-shape1]",
        "4 * hidden", "3 * hidden",
    ),
    Row(
        "3-l",
        "“uses bidirectional self-attention”, not one where a token attends “to context to its left” only",
        "core/ops/attention.py:Attention._probabilities",
        "core/test_bert.py::test_every_token_sees_every_other_both_ways",
        "if causal: ...", "if True: ...",
    ),
    Row(
        "3-m", "“a single sentence and a pair of sentences … in one token sequence”",
        "tasks/sentences.py:Sentences.features",
        "tasks/test_tasks.py::test_a_pair_is_read_as_two_segments_the_longer_one_cut",
        "_second_texts(block)", "None",
    ),
    Row(
        "3-n",
        "“WordPiece embeddings (Wu et al., 2016)”: greedy, longest match first, pieces inside words with ##",
        "tokenizer/greedy.py:GreedyCore.match",
        "tokenizer/test_wordpiece.py::test_the_longest_piece_wins[python]",
        "range(min(len(word), begin + self._longest_piece), begin, -1)",
        "range(begin + 1, min(len(word), begin + self._longest_piece) + 1)",
        note="The core in C is tested against this one.",
    ),
    Row(
        "3-o", "“with a 30,000 token vocabulary”",
        "core/wordpiece.py:learn",
        "tokenizer/test_learner.py::test_vocabulary_and_ids_are_those_of_the_plain_learner[python]",
        "len(vocab) < vocab_size", "len(vocab) <= vocab_size",
        note=(
            "The size is an option. The released English vocabulary has 30,522 pieces, which is the "
            "default of `BertConfig`."
        ),
    ),
    Row(
        "3-p", "“The first token of every sequence is always … [CLS]”",
        "data/layout.py:lay_out",
        "data/test_instances.py::test_sequences_are_cls_a_sep_b_sep_within_the_length",
        "tokenizer.cls_id", "tokenizer.mask_id",
    ),
    Row(
        "3-q", "“we separate them with a special token ([SEP])”",
        "data/layout.py:lay_out",
        "data/test_instances.py::test_sequences_are_cls_a_sep_b_sep_within_the_length",
        "tokenizer.sep_id", "tokenizer.mask_id",
    ),
    Row(
        "3-r", "“a learned embedding … indicating whether it belongs to sentence A or sentence B”",
        "core/ops/blocks.py:Blocks.embedding_block",
        "core/test_ops.py::test_embedding_block_is_the_norm_of_three_embeddings",
        "self.embedding(batch.token_type_ids, ...)", "self.embedding(0 * batch.token_type_ids, ...)",
    ),
    Row(
        "3-s", "“constructed by summing the corresponding token, segment, and position embeddings”",
        "core/ops/blocks.py:Blocks.embedding_block",
        "core/test_ops.py::test_embedding_block_is_the_norm_of_three_embeddings",
        "x = word + position + segment", "x = word + segment",
    ),
    Row(
        "3-t", "“the final hidden vector of the special [CLS] token as C”, the aggregate for classification",
        "core/ops/blocks.py:Blocks.pooler",
        "core/test_ops.py::test_pooler_looks_at_the_first_token_of_each_sequence",
        "self.take_rows(x, first_rows)", "self.take_rows(x, 0 * first_rows)",
        note="As in the released code, a dense layer with tanh stands behind it.",
    ),
    Row(
        "3-u", "“the final hidden vector for the iᵗʰ input token as Tᵢ”",
        "core/heads.py:read",
        "core/test_heads.py::test_tags_are_asked_at_their_rows_alone",
        "ops.take_rows(x, places)", "ops.take_rows(x, places[::-1])",
    ),
    Row(
        "3.1-a", "“we mask 15% of all WordPiece tokens in each sequence at random”",
        "data/instances.py:Instances._mask",
        "data/test_instances.py::test_masking_rates_are_fifteen_percent_and_eighty_ten_ten",
        "np.rint(lengths * options.masked_lm_prob)",
        "np.floor(lengths * options.masked_lm_prob)",
        note="As in the released code, 15% of all positions, [CLS] and [SEP] counted.",
    ),
    Row(
        "3.1-b",
        "“final hidden vectors corresponding to the mask tokens … into an output softmax over the "
        "vocabulary”",
        "core/ops/blocks.py:Blocks.masked_lm_logits",
        "core/test_ops.py::test_masked_lm_head_scores_the_masked_rows_alone_with_the_tied_embedding",
        'self.linear(x, table.T, params["output_bias"])',
        'self.linear(x, table.T, 0 * params["output_bias"])',
        note="As in the released code: dense, GELU and LayerNorm, then the word embedding as decoder.",
    ),
    Row(
        "3.1-c", "“we only predict the masked words rather than reconstructing the entire input”",
        "data/masking.py:choose_positions",
        "data/test_instances.py::test_masking_rates_are_fifteen_percent_and_eighty_ten_ten",
        "chosen[order[_rank(sequence) < count[sequence]]] = True", "chosen[order] = True",
    ),
    Row(
        "3.1-d", "“(1) the [MASK] token 80% of the time”",
        "core/masks.py:replace_tokens",
        "data/test_instances.py::test_masking_rates_are_fifteen_percent_and_eighty_ten_ten",
        "np.where(action < masked, ...)", "np.where(action < masked - 0.03, ...)",
    ),
    Row(
        "3.1-e", "“(2) a random token 10% of the time”",
        "core/masks.py:replace_tokens",
        "data/test_instances.py::test_masking_rates_are_fifteen_percent_and_eighty_ten_ten",
        "below(draw(keys, TOKEN + positions), vocab_size)",
        "below(draw(keys, TOKEN + positions), vocab_size // 2)",
    ),
    Row(
        "3.1-f", "“(3) the unchanged i-th token 10% of the time”",
        "core/masks.py:replace_tokens",
        "data/test_instances.py::test_masking_rates_are_fifteen_percent_and_eighty_ten_ten",
        "np.where(action < masked + kept, tokens, ...)", "np.where(action < masked + kept, mask_id, ...)",
    ),
    Row(
        "3.1-g", "“Tᵢ will be used to predict the original token with cross entropy loss”",
        "core/ops/losses.py:Losses.softmax_cross_entropy",
        "core/test_ops.py::test_cross_entropy_is_minus_the_logarithm_of_a_softmax",
        "shifted[rows, labels]", "shifted[rows, 0 * labels]",
    ),
    Row(
        "3.1-h", "“50% of the time B is the actual next sentence that follows A (labeled as IsNext)”",
        "data/nsp_spans.py:span_pairs",
        "data/test_instances.py::test_half_of_the_pairs_are_true_next_spans",
        "rng.random() < 0.5", "rng.random() < 0.4",
    ),
    Row(
        "3.1-i", "“50% of the time it is a random sentence from the corpus (labeled as NotNext)”",
        "data/nsp_spans.py:span_pairs",
        "data/test_instances.py::test_is_next_is_what_follows_and_not_next_is_from_another_document",
        "borders(_other_document(document, documents, rng))", "borders(document)",
        note="As in the released code, from another document.",
    ),
    Row(
        "3.1-j", "“C is used for next sentence prediction”",
        "core/bert.py:pretraining_loss",
        "core/test_bert.py::test_packed_batch_equals_each_sequence_alone[both ways]",
        'ops.pooler(x, first, params["pooler"])', 'ops.pooler(x, 0 * first, params["pooler"])',
    ),
    Row(
        "3.1-k", "“97%-98% accuracy on NSP”",
        note=(
            "Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words. "
            "A run reports its own accuracy beside that of the more frequent answer."
        ),
    ),
    Row(
        "3.1-l", "“BERT transfers all parameters to initialize end-task model parameters”",
        "finetuning/models.py:start_from",
        "finetuning/test_run.py::test_a_head_is_kept_for_the_same_thing_and_fresh_for_another",
        "params.flat", "0 * params.flat",
    ),
    Row(
        "3.1-m", "“BooksCorpus (800M words) and English Wikipedia (2,500M words)”",
        note=(
            "Not implemented: the package brings books in the public domain, and any other text is "
            "given as files."
        ),
    ),
    Row(
        "3.1-n", "“For Wikipedia we extract only the text passages and ignore lists, tables, and headers”",
        "data/wikipedia.py:_seen",
        "data/test_documents.py::test_a_dump_gives_the_passages_of_its_articles_and_nothing_else",
        'if kind == "Heading":\n        return "\\n\\n"', 'if kind == "Heading":\n        return str(node)',
    ),
    Row(
        "3.1-o", "“critical to use a document-level corpus … to extract long contiguous sequences”",
        "data/nsp_spans.py:contiguous_spans",
        "data/test_instances.py::test_without_next_sentences_the_spans_of_an_epoch_are_the_text",
        "done += size", "done += size + 1",
    ),
    Row(
        "3.1-p", "“the [MASK] token does not appear during fine-tuning”",
        note=(
            "Nothing puts it there. Where a text has it written, it is read as such, as by transformers, and "
            "a warning counts it; a tokenizer with `split_special_tokens` reads its letters."
        ),
    ),
    Row(
        "3.2-a",
        "“encoding a concatenated text pair with self-attention effectively includes bidirectional "
        "cross attention”",
        "core/ops/attention.py:Attention.attention",
        "core/test_bert.py::test_every_token_sees_every_other_both_ways",
        "groups, back = equal_length_groups(cu_seqlens)",
        "groups, back = equal_length_groups(np.union1d(cu_seqlens, (cu_seqlens[:-1] + cu_seqlens[1:]) // 2))",
    ),
    Row(
        "3.2-b", "“a degenerate text-∅ pair in text classification or sequence tagging”",
        "tasks/tagging.py:Tagging.features",
        "tasks/test_tagging.py::test_rows_are_first_pieces_and_labels_their_tags",
        "np.zeros(len(ids), np.int32)", "np.ones(len(ids), np.int32)",
    ),
    Row(
        "3.2-c", "“token representations are fed into an output layer for token-level tasks”",
        "core/heads.py:read",
        "core/test_heads.py::test_start_and_end_scores_are_products_with_two_vectors",
        "return ops.upcast(x), None", "return ops.upcast(x)[::-1], None",
    ),
    Row(
        "3.2-d", "“the [CLS] representation is fed into an output layer for classification”",
        "core/heads.py:rows_read",
        "core/test_heads.py::test_a_class_is_read_from_cls_and_under_causal_attention_from_the_last_"
        "token[first token]",
        "batch.last_rows if config.is_decoder else batch.first_rows", "batch.last_rows",
    ),
    Row(
        "3.2-e", "“replicated in at most 1 hour on a single Cloud TPU, or a few hours on a GPU”",
        note="Not measured: there was no TPU.",
    ),
    Row(
        "4-a", "“fine-tuning results on 11 NLP tasks”",
        "tasks/registry.py:OFFICIAL",
        "tasks/test_tasks.py::test_the_eleven_tasks_of_the_paper_have_its_heads_classes_and_"
        "metrics[squad2-span-classes9-None-f1]",
        '"squad2": "SQuAD 2.0: the same, where there may be none"',
        '"squad3": "SQuAD 2.0: the same, where there may be none"',
        note="All eleven are there, each a case of this test, and CoNLL-2003.",
    ),
    Row(
        "4.1-a", "“a standard classification loss with C and W, i.e., log(softmax(CWᵀ))”",
        "core/heads.py:loss_of_logits",
        "core/test_heads.py::test_a_class_is_read_from_cls_and_under_causal_attention_from_the_last_"
        "token[first token]",
        "ops.softmax_cross_entropy(scores, batch.labels)",
        "ops.softmax_cross_entropy(scores, 0 * batch.labels)",
    ),
    Row(
        "4.1-b", "“The only new parameters … are classification layer weights W ∈ ℝ^{K×H}”",
        "core/params.py:head_table",
        "core/test_params.py::test_a_head_is_one_linear_layer_behind_any_pooler[classify]",
        'weight("head.weight", H, head.outputs)', 'weight("head.weight", H, head.outputs + 1)',
        note="And a bias, as in the released code.",
    ),
    Row(
        "4.1-c", "“a batch size of 32 and fine-tune for 3 epochs”",
        "finetuning/options.py:TaskRecipe",
        "tasks/test_tasks.py::test_options_left_out_follow_the_paper",
        "epochs: float = 3.0", "epochs: float = 4.0",
    ),
    Row(
        "4.1-d", "“the best fine-tuning learning rate (among 5e-5, 4e-5, 3e-5, and 2e-5) on the Dev set”",
        "finetuning/options.py:SWEEP",
        "tasks/test_tasks.py::test_options_left_out_follow_the_paper",
        "(5e-5, 4e-5, 3e-5, 2e-5)", "(5e-5, 3e-5, 2e-5)",
    ),
    Row(
        "4.1-e", "“several random restarts and selected the best model on the Dev set”",
        "finetuning/options.py:FinetuneOptions.runs",
        "tasks/test_tasks.py::test_a_sweep_is_a_run_for_each_rate_and_seed",
        "self.seed + self.restarts", "self.seed + 1",
    ),
    Row(
        "4.1-f", "restarts: “different fine-tuning data shuffling and classifier layer initialization”",
        "finetuning/models.py:start_from",
        "finetuning/test_run.py::test_fresh_heads_differ_by_seed_only",
        "reset(params, HEAD, o.seed)", "reset(params, HEAD, 0)",
        note=(
            "The order of the examples follows the seed, too: `test_every_epoch_shows_each_feature_"
            "once_in_an_order_of_its_own`."
        ),
    ),
    Row(
        "4.1-g", "“F1 scores are reported for QQP and MRPC”",
        "tasks/metrics/scores.py:f1",
        "tasks/metrics/test_scores.py::test_f1_counts_hits_twice_and_both_kinds_of_error_once",
        "int(is_gold.sum() + is_predicted.sum())", "int(2 * is_predicted.sum())",
    ),
    Row(
        "4.1-h", "“Spearman correlations are reported for STS-B”",
        "tasks/metrics/scores.py:spearman",
        "tasks/metrics/test_scores.py::test_correlations_of_a_permutation_agree",
        "pearson(_ranks(x), _ranks(y))", "pearson(x, y)",
    ),
    Row(
        "4.1-i", "“accuracy scores are reported for the other tasks”",
        "tasks/metrics/scores.py:accuracy",
        "tasks/metrics/test_scores.py::test_accuracy_is_the_share_of_equal_labels",
        "np.mean(gold == predicted)", "np.mean(gold != predicted)",
    ),
    Row(
        "4.1-j", "the CoLA column, called accuracy in the caption, which is Matthews' correlation in GLUE",
        "tasks/metrics/scores.py:matthews",
        "tasks/metrics/test_scores.py::test_matthews_of_two_classes_is_the_formula_of_the_four_counts",
        "(n * n - sum(p * p for p in of_predicted))", "(n * n - sum(g * g for g in of_gold))",
    ),
    Row(
        "4.1-k", "MNLI “m/mm”: matched and mismatched dev sets",
        "data/glue.py:_ALL",
        "data/test_glue.py::test_mnli_takes_the_gold_label_and_not_those_of_single_people",
        '_mnli("mnli-mm", "MNLI-mm", "mismatched")', '_mnli("mnli-mm", "MNLI-mm", "matched")',
    ),
    Row(
        "4.1-l", "“scored by the evaluation server”: files of predictions as it takes them",
        "tasks/submissions.py:_answer",
        "tasks/test_tasks.py::test_submissions_are_spelled_as_the_server_"
        "wants[stsb-predictions3-STS-B.tsv-index\\tprediction\\n0\\t0.000\\n1\\t3.142\\n2\\t5.000\\n]",
        "min(max(prediction['value'], 0.0), HIGHEST_SCORE)", "prediction['value']",
    ),
    Row(
        "4.1-m", "the “Average” column, “we exclude the problematic WNLI set”",
        "experiments/judged.py:Judged.average",
        "experiments/test_page.py::test_the_average_of_table_1_is_that_of_its_nine_columns[BERT BASE]",
        "np.mean(values)", "np.median(values)",
        note=(
            "The printed averages are those of the nine columns: each half of MNLI counts as one. Ours are "
            "of the columns of `TABLE1`, which has the matched half of MNLI and no WNLI."
        ),
    ),
    Row(
        "4.1-n", "Table 1: 79.6 for BASE, 82.1 for LARGE on average",
        note=(
            "Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words. "
            "[Results](results.md#scores-of-fine-tuning) has other models on a part of these tasks, "
            "beside Hugging Face."
        ),
    ),
    Row(
        "4.2-a",
        "“a single packed sequence, with the question using the A embedding and the passage … the B "
        "embedding”",
        "tasks/windows.py:Windows.__getitem__",
        "tasks/test_windows.py::test_second_segment_begins_with_the_paragraph",
        "types[:first] = 0", "types[:] = 0",
    ),
    Row(
        "4.2-b", "“We only introduce a start vector S … and an end vector E”",
        "core/params.py:head_table",
        "core/test_params.py::test_a_head_is_one_linear_layer_behind_any_pooler[span]",
        '[weight("pooler.weight", H, H), bias("pooler.bias", H)] if head.pooled else []',
        '[weight("pooler.weight", H, H), bias("pooler.bias", H)]',
        note="And a bias for each of the two, as in the released code.",
    ),
    Row(
        "4.2-c", "Pᵢ = exp(S·Tᵢ) / Σⱼ exp(S·Tⱼ), “a softmax over all of the words in the paragraph”",
        "core/heads.py:loss_of_logits",
        "core/test_heads.py::test_a_span_is_a_start_and_an_end_among_the_tokens_of_its_sequence",
        "ops.segment_softmax_cross_entropy(scores[:, 0], ...)",
        "ops.segment_softmax_cross_entropy(scores[:, 1], ...)",
        note=(
            "As in the released code, the softmax is over all tokens of the sequence, those of the "
            "question included."
        ),
    ),
    Row(
        "4.2-d", "“The analogous formula is used for the end”",
        "core/heads.py:loss_of_logits",
        "core/test_heads.py::test_a_span_is_a_start_and_an_end_among_the_tokens_of_its_sequence",
        "ops.segment_softmax_cross_entropy(scores[:, 1], batch.cu_seqlens, ends)",
        "ops.segment_softmax_cross_entropy(scores[:, 1], batch.cu_seqlens, starts)",
    ),
    Row(
        "4.2-e", "“The score of a candidate span … S·Tᵢ + E·Tⱼ”",
        "tasks/answer_spans.py:Candidate",
        "tasks/test_answering.py::test_no_answer_counts_as_in_the_window_that_thinks_least_of_it",
        "self.start_logit + self.end_logit", "max(self.start_logit, self.end_logit)",
    ),
    Row(
        "4.2-f", "“the maximum scoring span where j ≥ i is used as a prediction”",
        "tasks/answer_spans.py:best_spans",
        "tasks/test_answering.py::test_best_spans_are_those_of_all_pairs",
        "[ends, np.full(longest, -np.inf)]", "[ends[:1], ends, np.full(longest, -np.inf)]",
        note="And at most 30 tokens, as in the released code.",
    ),
    Row(
        "4.2-g", "“the sum of the log-likelihoods of the correct start and end positions”",
        "core/heads.py:loss_of_logits",
        "core/test_heads.py::test_a_span_is_a_start_and_an_end_among_the_tokens_of_its_sequence",
        "span_weight * (start_nll + end_nll)", "span_weight * start_nll",
        note="Their mean by default, as in the released code; `--span-weight 1` gives the sum.",
    ),
    Row(
        "4.2-h", "“3 epochs with a learning rate of 5e-5 and a batch size of 32”",
        "finetuning/options.py:TaskRecipe",
        "tasks/test_tasks.py::test_options_left_out_follow_the_paper",
        "learning_rate: float = 5e-5", "learning_rate: float = 3e-5",
    ),
    Row(
        "4.2-i", "“first fine-tuning on TriviaQA befor[e] fine-tuning on SQuAD”",
        "finetuning/models.py:keeps_head",
        "finetuning/test_run.py::test_a_head_is_kept_for_the_same_thing_and_fresh_for_another",
        "return named and tuple(known) == tuple(labels)", "return False",
        note=(
            "Two commands, `finetune triviaqa` and `finetune squad1 --model` of that run. Jointly, as in the "
            "first version of the paper: `finetune squad1 --also triviaqa=DIR`."
        ),
    ),
    Row(
        "4.2-j",
        "TriviaQA: “the first 400 tokens in documents, that contain at least one of the provided "
        "possible answers”",
        "data/trivia.py:TOKENS",
        "data/test_squad.py::test_trivia_reads_400_tokens_of_a_document_by_default",
        "400", "401",
        note="A token is a word or a mark of punctuation.",
    ),
    Row(
        "4.2-k", "Table 2's columns: exact match and F1",
        "tasks/metrics/squad.py:_overlap",
        "tasks/metrics/test_squad.py::test_exact_match_and_f1_by_hand",
        "2 * precision * recall / (precision + recall)", "(precision + recall) / 2",
    ),
    Row(
        "4.2-l", "“7x systems which use different pre-training checkpoints and fine-tuning seeds”",
        "finetuning/predicting.py:predict_examples",
        "finetuning/test_sweep.py::test_an_ensemble_is_the_mean_of_its_outputs",
        "np.mean(each, axis=0)", "np.max(each, axis=0)",
        note="Scores are averaged; the paper does not say how its systems were combined.",
    ),
    Row(
        "4.2-m", "Table 2: dev EM/F1 80.8/88.5 for BASE, 84.1/90.9 for LARGE",
        note=(
            "Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words. "
            "Published predictions get the official digits."
        ),
    ),
    Row(
        "4.3-a", "“an answer span with start and end at the [CLS] token” where there is no answer",
        "tasks/windows.py:_labels",
        "tasks/test_windows.py::test_unanswerable_and_unanswered_questions_differ",
        "rows[~is_held] = 0",
        "rows[~is_held] = 1",
    ),
    Row(
        "4.3-b", "“The probability space … is extended to include the position of the [CLS] token”",
        "core/ops/losses.py:Losses.segment_softmax_cross_entropy",
        "core/test_ops.py::test_segment_cross_entropy_is_a_cross_entropy_of_each_segment",
        "self.softmax_cross_entropy(scores[rows], ...)",
        "self.softmax_cross_entropy(scores[rows] - 50 * (rows == rows[:, :1]), ...)",
        note="So it is for 1.1 as well, where a window without the answer has it at [CLS].",
    ),
    Row(
        "4.3-c", "s_null = S·C + E·C",
        "tasks/answer_spans.py:decode",
        "tasks/test_answering.py::test_no_answer_counts_as_in_the_window_that_thinks_least_of_it",
        "*lowest[0].tolist()", "*lowest[-1].tolist()",
        note="As in the released code, the lowest of all windows.",
    ),
    Row(
        "4.3-d", "“a non-null answer when ŝᵢⱼ > s_null + τ”",
        "tasks/answering.py:_prediction",
        "tasks/test_answering.py::test_threshold_chosen_on_dev_decides",
        "answers.null_odds > threshold", "answers.null_odds >= threshold",
        note=(
            "Null odds are s_null − ŝ and the threshold is −τ. At equality there is an answer, as in "
            "the official script."
        ),
    ),
    Row(
        "4.3-e", "“the threshold τ is selected on the dev set to maximize F1”",
        "tasks/answering.py:best_threshold",
        "tasks/test_answering.py::test_threshold_is_the_best_there_is",
        "sums.argmax()", "sums.argmin()",
    ),
    Row(
        "4.3-f", "“2 epochs with a learning rate of 5e-5 and a batch size of 48”",
        "finetuning/options.py:RECIPES",
        "tasks/test_tasks.py::test_options_left_out_follow_the_paper",
        '"squad2": TaskRecipe(epochs=2.0, batch_size=48)', '"squad2": TaskRecipe(epochs=2.0)',
    ),
    Row(
        "4.3-g", "“We did not use TriviaQA data for this model”",
        note="Nothing to break: which model is fine-tuned on SQuAD 2.0 is for the user to say.",
    ),
    Row(
        "4.3-h", "Table 3: dev EM/F1 78.7/81.9, test 80.0/83.1",
        note="Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words.",
    ),
    Row(
        "4.4-a",
        "“four input sequences, each containing … (sentence A) and a possible continuation (sentence B)”",
        "tasks/choices.py:Choices.features",
        "tasks/test_tasks.py::test_each_ending_is_a_sequence_with_the_context",
        'f"{example.start} {ending}"', 'f"{ending}"',
    ),
    Row(
        "4.4-b",
        "“a vector whose dot product with the [CLS] token representation C denotes a score for each choice”",
        "core/heads.py:output_scores",
        "core/test_heads.py::test_the_score_of_a_choice_is_cls_times_a_vector",
        'ops.linear(read, params["weight"], ...)', 'ops.linear(read, abs(params["weight"]), ...)',
    ),
    Row(
        "4.4-c", "“normalized with a softmax layer” over the choices",
        "core/heads.py:loss_of_logits",
        "core/test_heads.py::test_choices_compete_within_their_example",
        "scores.reshape(-1, batch.choices)", "scores.reshape(batch.choices, -1).T",
    ),
    Row(
        "4.4-d", "“3 epochs with a learning rate of 2e-5 and a batch size of 16”",
        "finetuning/options.py:RECIPES",
        "tasks/test_tasks.py::test_options_left_out_follow_the_paper",
        'dict.fromkeys(("swag", "hellaswag", "hellaswag-dev"), TaskRecipe(batch_size=16, '
        "learning_rate=2e-5))",
        'dict.fromkeys(("swag", "hellaswag", "hellaswag-dev"), TaskRecipe(batch_size=16))',
    ),
    Row(
        "4.4-e", "Table 4: dev 81.6 for BASE, 86.6 for LARGE",
        note="Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words.",
    ),
    Row(
        "5.1-a", "“No NSP: … trained using the MLM but without the NSP task”",
        "data/instances.py:InstanceOptions.pairs",
        "data/test_instances.py::test_without_next_sentences_the_spans_of_an_epoch_are_the_text",
        "self.next_sentence and not self.left_to_right", "not self.left_to_right",
    ),
    Row(
        "5.1-b",
        "“LTR & No NSP: A left-context-only model … trained using a standard Left-to-Right (LTR) LM”",
        "core/ops/attention.py:Attention._probabilities",
        "core/test_ops.py::test_causal_attention_is_that_of_the_prefix_alone_whatever_comes_later",
        "np.tri(rows.shape[1], dtype=bool)", "np.tri(rows.shape[1], k=1, dtype=bool)",
    ),
    Row(
        "5.1-c", "“a standard LTR LM”: the label of a token is the one after it",
        "data/layout.py:Block.predict_next_tokens",
        "data/test_instances.py::test_left_to_right_predicts_every_next_token_and_masks_none",
        "np.flatnonzero(is_asked) + 1", "np.flatnonzero(is_asked)",
    ),
    Row(
        "5.1-d", "“The left-only constraint was also applied at fine-tuning”",
        "finetuning/models.py:start_from",
        "finetuning/test_run.py::test_a_left_to_right_model_starts_left_to_right",
        "dataclasses.replace(config, **o.dropouts)",
        "dataclasses.replace(config, is_decoder=False, **o.dropouts)",
    ),
    Row(
        "5.1-e", "“exactly the same pretraining data, fine-tuning scheme, and hyperparameters”",
        "pretraining/options.py:PretrainOptions.resolved",
        "pretraining/test_run.py::test_an_ablation_changes_nothing_else_of_the_recipe[ablation1]",
        '"dropout": recipe.dropout,', '"dropout": 0.0 if self.left_to_right else recipe.dropout,',
    ),
    Row(
        "5.1-f", "“we added a randomly initialized BiLSTM on top”",
        "model/heads.py:_output_layer",
        "core/test_heads.py::test_lstms_stand_between_the_encoder_and_the_output_layer",
        "x, saved_lstm = ops.bilstm_block(...)", "_, saved_lstm = ops.bilstm_block(...)",
    ),
    Row(
        "5.1-g", "the LSTM's own equations, which the paper takes as known",
        "model/recurrent.py:Recurrent.lstm",
        "core/test_ops.py::test_lstm_reads_each_sequence_by_itself_from_its_own_end[forward]",
        "c = f * c + i * g", "c = f * c + (1 - f) * g",
    ),
    Row(
        "5.1-h", "LTR and RTL models whose tokens are concatenated, “as ELMo does”",
        note="Not implemented, nor did the paper train it.",
    ),
    Row(
        "5.1-i", "Table 5: BERT-BASE, No NSP, LTR & No NSP, + BiLSTM on five tasks",
        note=(
            "Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words. "
            "[Rerun](experiments.md) at a small scale, or by `--no-nsp`, `--left-to-right`, `--bilstm`."
        ),
    ),
    Row(
        "5.2-a", "Table 6's sizes, from (L=3, H=768, A=12) to (24, 1024, 16)",
        "core/config.py:BertConfig.from_size",
        "core/test_params.py::test_sizes_have_the_layers_width_heads_and_feed_forward_of_the_"
        "paper[6-768-3-shape3]",
        '"num_attention_heads": heads', '"num_attention_heads": hidden // 64',
    ),
    Row(
        "5.2-b", "“the average Dev Set accuracy from 5 random restarts of fine-tuning”",
        "reports/results.py:settings",
        "finetuning/test_sweep.py::test_mean_and_deviation_are_those_of_finished_runs",
        '"mean": statistics.mean(scores)', '"mean": max(scores)',
        note="`--restarts 5` gives the mean and the standard deviation of each setting.",
    ),
    Row(
        "5.2-c", "“the masked LM perplexity of held-out training data”",
        "pretraining/evaluation.py:HeldOut.perplexity",
        "pretraining/test_run.py::test_only_targets_that_show_mask_are_scored",
        "np.exp(...)", "np.exp2(...)",
        note="Over the targets that show [MASK] only; the paper does not say over which.",
    ),
    Row(
        "5.2-d", "Table 6: “larger models lead to a strict accuracy improvement across all four datasets”",
        note=(
            "Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words. "
            "[Rerun](experiments.md) at a small scale."
        ),
    ),
    Row(
        "5.3-a", "“we use a case-preserving WordPiece model”",
        "tokenizer/normalize.py:BasicTokenizer.align",
        "tokenizer/test_normalize.py::test_cased_words_keep_case_and_accents_even_decomposed_ones",
        "if self.lower_case: ...", "if True: ...",
    ),
    Row(
        "5.3-b", "“we include the maximal document context provided by the data”",
        "tasks/tagging.py:Tagging._document",
        "tasks/test_tagging.py::test_sentences_stand_among_those_of_their_document_only",
        "numbered[1].document if self.by_document else numbered[0]", "numbered[0]",
        note="A document that is too long for a sequence gets windows that overlap.",
    ),
    Row(
        "5.3-c", "“a tagging task but do not use a CRF layer”",
        "tasks/tagging.py:predicted_tags",
        "tasks/test_tagging.py::test_a_word_without_pieces_is_not_learnt_from_and_keeps_its_place",
        "scores.argmax(-1)", "scores.cumsum(0).argmax(-1)",
    ),
    Row(
        "5.3-d", "“the representation of the first sub-token as the input to the token-level classifier”",
        "tasks/tagging.py:_first_rows",
        "tasks/test_tagging.py::test_rows_are_first_pieces_and_labels_their_tags",
        "np.cumsum(pieces) - pieces", "np.cumsum(pieces)",
    ),
    Row(
        "5.3-e",
        "“extracting the activations from one or more layers without fine-tuning any parameters of BERT”",
        "finetuning/feature_based.py:FeatureBasedRun.deliver",
        "finetuning/test_feature_based.py::test_a_tagger_on_frozen_layers_learns_who_and_where",
        "hub.save_hf(folder, model.config, model.params, ...)",
        "hub.save_hf(folder, model.config, model.params.like(1.01 * model.params.flat), ...)",
    ),
    Row(
        "5.3-f", "“a randomly initialized two-layer 768-dimensional BiLSTM before the classification layer”",
        "model/bilstm.py:BilstmConfig",
        "model/test_bilstm.py::test_the_papers_tagger_has_so_many_parameters",
        "width: int = 768", "width: int = 384",
    ),
    Row(
        "5.3-g", "Table 7: Embeddings, Second-to-Last Hidden, Last Hidden",
        "finetuning/frozen/activations.py:COMBINATIONS",
        "finetuning/test_feature_based.py::test_combinations_are_the_rows_of_table_7",
        'Combination("Second-to-Last Hidden", (-2,))', 'Combination("Second-to-Last Hidden", (-3,))',
    ),
    Row(
        "5.3-h", "Table 7: Weighted Sum Last Four Hidden",
        "model/recurrent.py:Recurrent.layer_mix",
        "core/test_ops.py::test_layer_mix_with_equal_weights_is_the_mean_and_with_unequal_ones_a_softmax",
        "exponentials / exponentials.sum()", "exponentials",
        note="Weights are learnt, through a softmax, as in ELMo; the paper does not say how.",
    ),
    Row(
        "5.3-i", "Table 7: Concat Last Four Hidden, “the top four hidden layers”",
        "finetuning/frozen/activations.py:WordVectors.sentence",
        "finetuning/test_feature_based.py::test_sentences_take_their_layers_side_by_side_or_to_be_mixed",
        "np.concatenate(parts, axis=-1)", "np.concatenate(parts[::-1], axis=-1)",
    ),
    Row(
        "5.3-j", "Table 7: Weighted Sum All 12 Layers",
        "finetuning/frozen/activations.py:COMBINATIONS",
        "finetuning/test_feature_based.py::test_combinations_are_the_rows_of_table_7",
        'Combination("Weighted Sum All Layers", "all", mixed=True)',
        'Combination("Weighted Sum All Layers", "all")',
    ),
    Row(
        "5.3-k", "“Hyperparameters were selected using the Dev set … averaged over 5 random restarts”",
        "experiments/verdicts.py:_interval",
        "experiments/test_verdicts.py::test_estimates_cover_the_true_metric_about_19_times_in_20",
        "mean = float(parts.mean())", "mean = float(seed_means.max())",
        note="Three seeds at the scale of a laptop, five on a larger machine. Rates are of the scale.",
    ),
    Row(
        "5.3-l", "Table 7's F1, of whole entities (CoNLL-2003)",
        "tasks/metrics/schemes.py:_conll_chunks",
        "tasks/metrics/test_entities.py::test_chunks_by_hand",
        "_is_border(before, tag) or kind_of(before) != kind_of(tag)", "_is_border(before, tag)",
    ),
    Row(
        "5.3-m", "Table 7: dev F1 from 91.0 (embeddings) to 96.1 (concatenated), 96.4 fine-tuned",
        note=(
            "Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words. "
            "[Results](results.md#table-7-of-the-paper) has the table made from MiniLM."
        ),
    ),
    Row(
        "A.1-a", "“random replacement only occurs for 1.5% of all tokens (i.e., 10% of 15%)”",
        "data/instances.py:InstanceOptions",
        "data/test_instances.py::test_masking_rates_are_fifteen_percent_and_eighty_ten_ten",
        "mask_rates: tuple[float, float, float] = (0.8, 0.1, 0.1)",
        "mask_rates: tuple[float, float, float] = (0.8, 0.15, 0.05)",
    ),
    Row(
        "A.1-b", "“Input = [CLS] the man went to [MASK] store [SEP] he bought a gallon [MASK] milk [SEP]”",
        "data/layout.py:lay_out",
        "data/test_instances.py::test_two_tiny_documents_give_what_one_can_work_out_by_hand",
        "begins[:-1] + a_length + 2", "begins[:-1] + a_length + 1",
    ),
    Row(
        "A.1-c",
        "“the masked LM only make predictions on 15% of tokens”, a left-to-right model on every token",
        "data/instances.py:InstanceOptions.most_predictions",
        "data/test_instances.py::test_most_predictions_default_to_a_share_of_the_length",
        "math.ceil(...)", "math.floor(...)",
    ),
    Row(
        "A.2-a", "“we sample two spans of text …, typically much longer than single sentences”",
        "data/nsp_spans.py:span_pairs",
        "data/test_instances.py::test_one_in_ten_targets_is_short",
        "bisect_left(ends, done + target, first, last)", "min(first + 1, last)",
    ),
    Row(
        "A.2-b", "“The first sentence receives the A embedding and the second receives the B embedding”",
        "data/layout.py:lay_out",
        "data/test_instances.py::test_sequences_are_cls_a_sep_b_sep_within_the_length",
        "np.array([0, 1], np.int32)", "np.array([1, 0], np.int32)",
    ),
    Row(
        "A.2-c", "“sampled such that the combined length is ≤ 512 tokens”",
        "data/nsp_spans.py:truncated",
        "data/test_instances.py::test_truncation_leaves_the_lengths_that_one_by_one_removal_leaves",
        "excess = a_length + b_length - room", "excess = a_length + b_length - room - 1",
    ),
    Row(
        "A.2-d",
        "“masking is applied after WordPiece tokenization …, no special consideration given to partial "
        "word pieces”",
        "pretraining/options.py:PretrainOptions",
        "pretraining/test_run.py::test_masks_spans_and_optimizer_are_the_papers_by_default",
        'option(False, "mask all pieces of a word, or none")',
        'option(True, "mask all pieces of a word, or none")',
        note="`--whole-word-mask` is the later variant.",
    ),
    Row(
        "A.2-e", "“batch size of 256 sequences (256 sequences * 512 tokens = 128,000 tokens/batch)”",
        "pretraining/recipes.py:RECIPES",
        "pretraining/test_run.py::test_the_papers_schedule_is_one_case",
        '"base": SizeRecipe(1e-4, "128:0.9,512:0.1", 256, ...)',
        '"base": SizeRecipe(1e-4, "128:0.9,512:0.1", 128, ...)',
        note="256 sequences at 512 tokens; at 128 as many tokens, hence 1,024 sequences.",
    ),
    Row(
        "A.2-f", "“1,000,000 steps, which is approximately 40 epochs over the 3.3 billion word corpus”",
        note="Nothing to break: the number of steps is given, `--steps 1000000`. No run was that long.",
    ),
    Row(
        "A.2-g", "“We use Adam”: its update",
        "core/ops/updates.py:Updates.adamw",
        "core/test_optim.py::test_ten_updates_equal_the_formula_written_out[True]",
        "(np.sqrt(v_scale * v[s]) + rule.eps)", "np.sqrt(v_scale * v[s] + rule.eps)",
        note="Without bias correction for `base` and `large`, as in the released code.",
    ),
    Row(
        "A.2-h", "“learning rate of 1e-4”",
        "pretraining/recipes.py:RECIPES",
        "pretraining/test_run.py::test_the_papers_schedule_is_one_case",
        '"base": SizeRecipe(1e-4, ...)', '"base": SizeRecipe(2e-4, ...)',
    ),
    Row(
        "A.2-i", "“β₁ = 0.9, β₂ = 0.999”",
        "base/options.py:TrainingArguments",
        "pretraining/test_run.py::test_masks_spans_and_optimizer_are_the_papers_by_default",
        "beta2: float = option(0.999, ...)", "beta2: float = option(0.99, ...)",
    ),
    Row(
        "A.2-j", "“L2 weight decay of 0.01”",
        "base/options.py:TrainingArguments",
        "pretraining/test_run.py::test_masks_spans_and_optimizer_are_the_papers_by_default",
        "weight_decay: float = option(0.01, ...)", "weight_decay: float = option(0.1, ...)",
        note="Decoupled, and not of biases and LayerNorm, as in the released code.",
    ),
    Row(
        "A.2-k", "“learning rate warmup over the first 10,000 steps”",
        "core/optim.py:warmup_linear",
        "core/test_optim.py::test_googles_schedule_decays_from_step_zero_and_drops_where_warm_up_ends",
        "peak * step / warmup", "peak",
        note="10,000 of 1,000,000 steps are `warmup` 0.01 of the recipe.",
    ),
    Row(
        "A.2-l", "“linear decay of the learning rate”",
        "core/optim.py:warmup_linear",
        "core/test_optim.py::test_googles_schedule_decays_from_step_zero_and_drops_where_warm_up_ends",
        "max(0.0, (total - step) / max(1, total - begin))",
        "max(0.0, (total - step) / max(1, total - begin)) ** 2",
    ),
    Row(
        "A.2-m", "“a dropout probability of 0.1 on all layers”",
        "core/ops/blocks.py:Blocks.feed_forward_block",
        "core/test_bert.py::test_dropout_stands_behind_the_embeddings_the_probabilities_and_both_"
        "sublayers_of_every_layer",
        "out, saved_drop = self._dropout(out, drop, output_site)", "saved_drop = None",
    ),
    Row(
        "A.2-n", "“a gelu activation (Hendrycks and Gimpel, 2016)”: x Φ(x)",
        "core/ops/primitives.py:Primitives.gelu",
        "core/test_ops.py::test_gelu_is_x_times_the_normal_distribution_function",
        "0.5 * self._erfc(x * -math.sqrt(0.5))", "1.0 * (x > 0)",
        note="The later releases' tanh form is `--hidden-act gelu_new`.",
    ),
    Row(
        "A.2-o",
        "“the sum of the mean masked LM likelihood and the mean next sentence prediction likelihood”",
        "core/bert.py:pretraining_loss",
        "core/test_bert.py::test_batch_without_a_masked_token_has_a_finite_loss_and_no_masked_lm_"
        "gradient[both ways]",
        "mlm_loss + nsp_loss", "(mlm_loss + nsp_loss) / 2",
    ),
    Row(
        "A.2-p", "“4 Cloud TPUs …, 16 Cloud TPUs … Each pretraining took 4 days to complete”",
        note="Not measured: there was no TPU. [Scale](scale.md) computes what such a run would take.",
    ),
    Row(
        "A.2-q", "“attention is quadratic to the sequence length”",
        "engines/flops.py:attention_pairs",
        "engines/test_trace.py::test_operations_of_a_step_are_the_useful_ones[both ways-numpy]",
        "lengths * lengths", "8 * lengths",
    ),
    Row(
        "A.2-r", "“sequence length of 128 for 90% of the steps”, then “512”",
        "pretraining/recipes.py:RECIPES",
        "pretraining/test_run.py::test_the_papers_schedule_is_one_case",
        '"base": SizeRecipe(1e-4, "128:0.9,512:0.1", ...)',
        '"base": SizeRecipe(1e-4, "128:0.8,512:0.2", ...)',
    ),
    Row(
        "A.3-a", "“The dropout probability was always kept at 0.1”",
        "core/config.py:BertConfig",
        "tasks/test_tasks.py::test_options_left_out_follow_the_paper",
        "hidden_dropout_prob: float = 0.1", "hidden_dropout_prob: float = 0.0",
        note="Fine-tuning keeps the dropout in the configuration of the model, 0.1 in those of the paper.",
    ),
    Row(
        "A.3-b",
        "“Batch size: 16, 32”; “Learning rate (Adam): 5e-5, 3e-5, 2e-5”; “Number of epochs: 2, 3, 4”",
        "finetuning/options.py:FinetuneOptions.runs",
        "tasks/test_tasks.py::test_the_grid_of_appendix_a3_is_a_run_for_each_setting_and_seed",
        "product(*(_listed(getattr(self, name)) for name in SWEPT), seeds)",
        "product(*(_listed(getattr(self, name))[:1] for name in SWEPT), seeds)",
        note="`--batch-size 16,32 --lr 5e-5,3e-5,2e-5 --epochs 2,3,4`.",
    ),
    Row(
        "A.3-c", "“an exhaustive search over the above parameters”, the best on the dev set is chosen",
        "finetuning/sweep.py:sweep",
        "finetuning/test_sweep.py::test_the_best_run_of_a_sweep_stands_at_its_top",
        "max(finished, ...)", "min(finished, ...)",
        note="Of each run the best epoch counts.",
    ),
    Row(
        "A.3-d", "“large data sets … were far less sensitive to hyperparameter choice”",
        note="Not measured.",
    ),
    Row(
        "A.4-a", "“BERT learns [SEP], [CLS] and sentence A/B embeddings during pre-training”",
        "core/ops/blocks.py:Blocks.embedding_block_backward",
        "gradcheck/test_gradients.py::test_gradient_equals_the_complex_step[ugly-embedding_block-numpy]",
        'self.embedding_backward(dx, saved.segment, grads["segment"])', 'grads["segment"]',
    ),
    Row(
        "A.4-b", "“a task-specific fine-tuning learning rate which performs the best on the development set”",
        "finetuning/options.py:FinetuneOptions.runs",
        "tasks/test_tasks.py::test_a_sweep_is_a_run_for_each_rate_and_seed",
        '"learning_rates": (rate,)', '"learning_rates": (5e-5,)',
    ),
    Row(
        "A.5-a", "“incorporating BERT with one additional output layer”",
        "model/params.py:parameter_table",
        "core/test_params.py::test_a_head_is_one_linear_layer_behind_any_pooler[tag]",
        "if head.lstm: ...", 'if head.lstm or head.kind == "tag": ...',
        note="And the pooler of pre-training, where a head reads [CLS].",
    ),
    Row(
        "A.5-b", "“(a) and (b) are sequence-level tasks while (c) and (d) are token-level tasks”",
        "core/head_kinds.py:KINDS",
        "tasks/test_tasks.py::test_sequence_level_heads_read_cls_and_token_level_heads_read_"
        "tokens[tag-labels]",
        '"tag": HeadKind(LABELS, ...)', '"tag": HeadKind(SEQUENCES, ...)',
    ),
    Row(
        "B.1-a", "MNLI: “entailment, contradiction, or neutral”, pairs",
        "data/glue.py:_INFERENCE",
        "tasks/test_tasks.py::test_the_eleven_tasks_of_the_paper_have_its_heads_classes_and_"
        "metrics[mnli-classify-classes0-True-accuracy]",
        '("entailment", "neutral", "contradiction")', '("entailment", "contradiction")',
    ),
    Row(
        "B.1-b", "QQP: “binary”, pairs of questions",
        "data/glue.py:_ALL",
        "tasks/test_tasks.py::test_the_eleven_tasks_of_the_paper_have_its_heads_classes_and_"
        "metrics[qqp-classify-classes1-True-f1]",
        'GlueTask("qqp", "QQP", _DUPLICATE, ...)', 'GlueTask("qqp", "QQP", _DUPLICATE[:1], ...)',
    ),
    Row(
        "B.1-c", "QNLI: “binary”, pairs of question and sentence",
        "data/glue.py:_ALL",
        "tasks/test_tasks.py::test_the_eleven_tasks_of_the_paper_have_its_heads_classes_and_"
        "metrics[qnli-classify-classes2-True-accuracy]",
        '("question", "sentence")', '("sentence",)',
    ),
    Row(
        "B.1-d", "SST-2: “binary single-sentence”",
        "data/glue.py:_ALL",
        "tasks/test_tasks.py::test_the_eleven_tasks_of_the_paper_have_its_heads_classes_and_"
        "metrics[sst2-classify-classes3-False-accuracy]",
        'GlueTask("sst2", "SST-2", _ONE, ...)', 'GlueTask("sst2", "SST-2", _TWO, ...)',
    ),
    Row(
        "B.1-e", "CoLA: “binary single-sentence”",
        "data/glue.py:_ALL",
        "tasks/test_tasks.py::test_the_eleven_tasks_of_the_paper_have_its_heads_classes_and_"
        "metrics[cola-classify-classes4-False-matthews]",
        'GlueTask("cola", "CoLA", _ONE, ...)', 'GlueTask("cola", "CoLA", _TWO, ...)',
    ),
    Row(
        "B.1-f", "STS-B: pairs “annotated with a score”",
        "data/glue.py:_ALL",
        "tasks/test_tasks.py::test_the_eleven_tasks_of_the_paper_have_its_heads_classes_and_"
        "metrics[stsb-regress-classes5-True-spearman]",
        'GlueTask("stsb", "STS-B", _TWO, "score", (), ...)',
        'GlueTask("stsb", "STS-B", _TWO, "score", _BINARY, ...)',
        note="Its files have scores from 0 to 5, where the paper says 1 to 5.",
    ),
    Row(
        "B.1-g", "MRPC: “sentence pairs …, semantically equivalent” or not",
        "data/glue.py:_ALL",
        "tasks/test_tasks.py::test_the_eleven_tasks_of_the_paper_have_its_heads_classes_and_"
        "metrics[mrpc-classify-classes6-True-f1]",
        'GlueTask("mrpc", "MRPC", _PARAPHRASE, "Quality", _BINARY, _BOTH, ...)',
        'GlueTask("mrpc", "MRPC", _PARAPHRASE, "Quality", _BINARY, _ACCURACY, ...)',
    ),
    Row(
        "B.1-h", "RTE: “binary entailment”, pairs",
        "data/glue.py:_ALL",
        "tasks/test_tasks.py::test_the_eleven_tasks_of_the_paper_have_its_heads_classes_and_"
        "metrics[rte-classify-classes7-True-accuracy]",
        'GlueTask("rte", "RTE", _TWO, "label", _ENTAILED, ...)',
        'GlueTask("rte", "RTE", _TWO, "label", _INFERENCE, ...)',
    ),
    Row(
        "B.1-i", "WNLI: “we always predicted the majority class”",
        "tasks/submissions.py:majority",
        "tasks/test_tasks.py::test_the_most_frequent_class_is_that_of_the_examples",
        "(-labels[one], one)", "(labels[one], one)",
        note="`predict --majority`.",
    ),
    Row(
        "B.1-j", "“we only report single-task fine-tuning results”; several tasks at once would help RTE",
        "finetuning/preparation.py:read_labelled",
        "finetuning/test_joint.py::test_of_mnli_what_does_not_follow_is_not_entailed_for_rte",
        "train + more", "train",
        note="A run has one task; `finetune rte --also mnli=DIR` learns from two with the same answers.",
    ),
    Row(
        "C.1-a",
        "Figure 5: “almost 1.0% additional accuracy on MNLI when trained on 1M steps compared to 500k steps”",
        note=(
            "Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words. "
            "[Rerun](experiments.md) at a small scale."
        ),
    ),
    Row(
        "C.1-b",
        "“The MLM model does converge slightly slower than the LTR model” and is better “almost immediately”",
        note=(
            "Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words. "
            "[Rerun](experiments.md) at a small scale."
        ),
    ),
    Row(
        "C.2-a", "Table 8: shares of MASK, SAME and RND are chosen freely",
        "core/masks.py:replace_tokens",
        "data/test_instances.py::test_the_rates_of_table_8_are_kept[rates3]",
        "masked, kept, _ = rates", "masked, _, kept = rates",
    ),
    Row(
        "C.2-b", "RND: “replace the target token with another random token”",
        "core/masks.py:replace_tokens",
        "data/test_instances.py::test_random_tokens_come_from_the_whole_vocabulary_special_tokens_too",
        "np.where(action < masked + kept, tokens, other)",
        "np.where(action < masked + kept, tokens, tokens)",
        note="As in the released code, any of the vocabulary, the token itself included.",
    ),
    Row(
        "C.2-c", "“we concatenate the last 4 layers of BERT as the features”",
        "finetuning/frozen/activations.py:COMBINATIONS",
        "finetuning/test_feature_based.py::test_combinations_are_the_rows_of_table_7",
        'Combination("Concat Last Four Hidden", (-4, -3, -2, -1))',
        'Combination("Concat Last Four Hidden", (-3, -2, -1))',
    ),
    Row(
        "C.2-d", "Table 8: MNLI from 83.6 to 84.4, NER from 94.0 to 95.4",
        note=(
            "Not measured: it takes the paper's pre-training, 1,000,000 steps over 3.3 billion words. "
            "[Rerun](experiments.md) at a small scale, or row by row with `--mask-rates`."
        ),
    ),
)  # fmt: skip
