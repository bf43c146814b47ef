"""What the paper says, sentence by sentence (Devlin et al. 2019, sections 3 to 5, appendices A to C).

The list was taken from the paper's text before a line of code was looked for, and rows without code stay in it.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """One equation, setting or claim.

    Attributes
    ----------
    number : section of the paper and a letter.
    paper : what it says, in its words or its formula.
    """

    number: str
    paper: str


ROWS = (
    # 3 BERT
    Row("3-a", "“all of the parameters are fine-tuned using labeled data from the downstream tasks”"),
    Row("3-b", "“Each downstream task has separate fine-tuned models”, all from “the same pre-trained parameters”"),
    Row("3-c", "“multi-layer bidirectional Transformer encoder”: L layers, one after another"),
    Row("3-d", "attention, by reference to Vaswani et al.: softmax(QKᵀ/√d)V"),
    Row("3-e", "multi-head attention, likewise: A heads of H/A dimensions side by side, then projected"),
    Row("3-f", "residual and LayerNorm after attention, likewise: LayerNorm(x + Sublayer(x))"),
    Row("3-g", "feed-forward sublayer, likewise: two linear maps, residual and LayerNorm"),
    Row("3-h", "LayerNorm itself, likewise (Ba et al. 2016)"),
    Row("3-i", "“BERT-BASE (L=12, H=768, A=12, Total Parameters=110M)”"),
    Row("3-j", "“BERT-LARGE (L=24, H=1024, A=16, Total Parameters=340M)”"),
    Row("3-k", "“we set the feed-forward/filter size to be 4H”"),
    Row("3-l", "“uses bidirectional self-attention”, not one where a token attends “to context to its left” only"),
    Row("3-m", "“a single sentence and a pair of sentences … in one token sequence”"),
    Row("3-n", "“WordPiece embeddings (Wu et al., 2016)”: greedy, longest match first, pieces inside words with ##"),
    Row("3-o", "“with a 30,000 token vocabulary”"),
    Row("3-p", "“The first token of every sequence is always … [CLS]”"),
    Row("3-q", "“we separate them with a special token ([SEP])”"),
    Row("3-r", "“a learned embedding … indicating whether it belongs to sentence A or sentence B”"),
    Row("3-s", "“constructed by summing the corresponding token, segment, and position embeddings”"),
    Row("3-t", "“the final hidden vector of the special [CLS] token as C”, the aggregate for classification"),
    Row("3-u", "“the final hidden vector for the iᵗʰ input token as Tᵢ”"),
    # 3.1 Pre-training BERT
    Row("3.1-a", "“we mask 15% of all WordPiece tokens in each sequence at random”"),
    Row("3.1-b", "“final hidden vectors corresponding to the mask tokens … into an output softmax over the vocabulary”"),
    Row("3.1-c", "“we only predict the masked words rather than reconstructing the entire input”"),
    Row("3.1-d", "“(1) the [MASK] token 80% of the time”"),
    Row("3.1-e", "“(2) a random token 10% of the time”"),
    Row("3.1-f", "“(3) the unchanged i-th token 10% of the time”"),
    Row("3.1-g", "“Tᵢ will be used to predict the original token with cross entropy loss”"),
    Row("3.1-h", "“50% of the time B is the actual next sentence that follows A (labeled as IsNext)”"),
    Row("3.1-i", "“50% of the time it is a random sentence from the corpus (labeled as NotNext)”"),
    Row("3.1-j", "“C is used for next sentence prediction”"),
    Row("3.1-k", "“97%-98% accuracy on NSP”"),
    Row("3.1-l", "“BERT transfers all parameters to initialize end-task model parameters”"),
    Row("3.1-m", "“BooksCorpus (800M words) and English Wikipedia (2,500M words)”"),
    Row("3.1-n", "“For Wikipedia we extract only the text passages and ignore lists, tables, and headers”"),
    Row("3.1-o", "“critical to use a document-level corpus … to extract long contiguous sequences”"),
    Row("3.1-p", "“the [MASK] token does not appear during fine-tuning”"),
    # 3.2 Fine-tuning BERT
    Row("3.2-a", "“encoding a concatenated text pair with self-attention effectively includes bidirectional cross attention”"),
    Row("3.2-b", "“a degenerate text-∅ pair in text classification or sequence tagging”"),
    Row("3.2-c", "“token representations are fed into an output layer for token-level tasks”"),
    Row("3.2-d", "“the [CLS] representation is fed into an output layer for classification”"),
    Row("3.2-e", "“replicated in at most 1 hour on a single Cloud TPU, or a few hours on a GPU”"),
    # 4 Experiments
    Row("4-a", "“fine-tuning results on 11 NLP tasks”"),
    # 4.1 GLUE
    Row("4.1-a", "“a standard classification loss with C and W, i.e., log(softmax(CWᵀ))”"),
    Row("4.1-b", "“The only new parameters … are classification layer weights W ∈ ℝ^{K×H}”"),
    Row("4.1-c", "“a batch size of 32 and fine-tune for 3 epochs”"),
    Row("4.1-d", "“the best fine-tuning learning rate (among 5e-5, 4e-5, 3e-5, and 2e-5) on the Dev set”"),
    Row("4.1-e", "“several random restarts and selected the best model on the Dev set”"),
    Row("4.1-f", "restarts: “different fine-tuning data shuffling and classifier layer initialization”"),
    Row("4.1-g", "“F1 scores are reported for QQP and MRPC”"),
    Row("4.1-h", "“Spearman correlations are reported for STS-B”"),
    Row("4.1-i", "“accuracy scores are reported for the other tasks”"),
    Row("4.1-j", "the CoLA column, called accuracy in the caption, which is Matthews' correlation in GLUE"),
    Row("4.1-k", "MNLI “m/mm”: matched and mismatched dev sets"),
    Row("4.1-l", "“scored by the evaluation server”: files of predictions as it takes them"),
    Row("4.1-m", "the “Average” column, “we exclude the problematic WNLI set”"),
    Row("4.1-n", "Table 1: 79.6 for BASE, 82.1 for LARGE on average"),
    # 4.2 SQuAD v1.1
    Row("4.2-a", "“a single packed sequence, with the question using the A embedding and the passage … the B embedding”"),
    Row("4.2-b", "“We only introduce a start vector S … and an end vector E”"),
    Row("4.2-c", "Pᵢ = exp(S·Tᵢ) / Σⱼ exp(S·Tⱼ), “a softmax over all of the words in the paragraph”"),
    Row("4.2-d", "“The analogous formula is used for the end”"),
    Row("4.2-e", "“The score of a candidate span … S·Tᵢ + E·Tⱼ”"),
    Row("4.2-f", "“the maximum scoring span where j ≥ i is used as a prediction”"),
    Row("4.2-g", "“the sum of the log-likelihoods of the correct start and end positions”"),
    Row("4.2-h", "“3 epochs with a learning rate of 5e-5 and a batch size of 32”"),
    Row("4.2-i", "“first fine-tuning on TriviaQA befor[e] fine-tuning on SQuAD”"),
    Row("4.2-j", "TriviaQA: “the first 400 tokens in documents, that contain at least one of the provided possible answers”"),
    Row("4.2-k", "Table 2's columns: exact match and F1"),
    Row("4.2-l", "“7x systems which use different pre-training checkpoints and fine-tuning seeds”"),
    Row("4.2-m", "Table 2: dev EM/F1 80.8/88.5 for BASE, 84.1/90.9 for LARGE"),
    # 4.3 SQuAD v2.0
    Row("4.3-a", "“an answer span with start and end at the [CLS] token” where there is no answer"),
    Row("4.3-b", "“The probability space … is extended to include the position of the [CLS] token”"),
    Row("4.3-c", "s_null = S·C + E·C"),
    Row("4.3-d", "“a non-null answer when ŝᵢⱼ > s_null + τ”"),
    Row("4.3-e", "“the threshold τ is selected on the dev set to maximize F1”"),
    Row("4.3-f", "“2 epochs with a learning rate of 5e-5 and a batch size of 48”"),
    Row("4.3-g", "“We did not use TriviaQA data for this model”"),
    Row("4.3-h", "Table 3: dev EM/F1 78.7/81.9, test 80.0/83.1"),
    # 4.4 SWAG
    Row("4.4-a", "“four input sequences, each containing … (sentence A) and a possible continuation (sentence B)”"),
    Row("4.4-b", "“a vector whose dot product with the [CLS] token representation C denotes a score for each choice”"),
    Row("4.4-c", "“normalized with a softmax layer” over the choices"),
    Row("4.4-d", "“3 epochs with a learning rate of 2e-5 and a batch size of 16”"),
    Row("4.4-e", "Table 4: dev 81.6 for BASE, 86.6 for LARGE"),
    # 5.1 Effect of Pre-training Tasks
    Row("5.1-a", "“No NSP: … trained using the MLM but without the NSP task”"),
    Row("5.1-b", "“LTR & No NSP: A left-context-only model … trained using a standard Left-to-Right (LTR) LM”"),
    Row("5.1-c", "“a standard LTR LM”: the label of a token is the one after it"),
    Row("5.1-d", "“The left-only constraint was also applied at fine-tuning”"),
    Row("5.1-e", "“exactly the same pretraining data, fine-tuning scheme, and hyperparameters”"),
    Row("5.1-f", "“we added a randomly initialized BiLSTM on top”"),
    Row("5.1-g", "the LSTM's own equations, which the paper takes as known"),
    Row("5.1-h", "LTR and RTL models whose tokens are concatenated, “as ELMo does”"),
    Row("5.1-i", "Table 5: BERT-BASE, No NSP, LTR & No NSP, + BiLSTM on five tasks"),
    # 5.2 Effect of Model Size
    Row("5.2-a", "Table 6's sizes, from (L=3, H=768, A=12) to (24, 1024, 16)"),
    Row("5.2-b", "“the average Dev Set accuracy from 5 random restarts of fine-tuning”"),
    Row("5.2-c", "“the masked LM perplexity of held-out training data”"),
    Row("5.2-d", "Table 6: “larger models lead to a strict accuracy improvement across all four datasets”"),
    # 5.3 Feature-based Approach with BERT
    Row("5.3-a", "“we use a case-preserving WordPiece model”"),
    Row("5.3-b", "“we include the maximal document context provided by the data”"),
    Row("5.3-c", "“a tagging task but do not use a CRF layer”"),
    Row("5.3-d", "“the representation of the first sub-token as the input to the token-level classifier”"),
    Row("5.3-e", "“extracting the activations from one or more layers without fine-tuning any parameters of BERT”"),
    Row("5.3-f", "“a randomly initialized two-layer 768-dimensional BiLSTM before the classification layer”"),
    Row("5.3-g", "Table 7: Embeddings, Second-to-Last Hidden, Last Hidden"),
    Row("5.3-h", "Table 7: Weighted Sum Last Four Hidden"),
    Row("5.3-i", "Table 7: Concat Last Four Hidden, “the top four hidden layers”"),
    Row("5.3-j", "Table 7: Weighted Sum All 12 Layers"),
    Row("5.3-k", "“Hyperparameters were selected using the Dev set … averaged over 5 random restarts”"),
    Row("5.3-l", "Table 7's F1, of whole entities (CoNLL-2003)"),
    Row("5.3-m", "Table 7: dev F1 from 91.0 (embeddings) to 96.1 (concatenated), 96.4 fine-tuned"),
    # A.1 Illustration of the Pre-training Tasks
    Row("A.1-a", "“random replacement only occurs for 1.5% of all tokens (i.e., 10% of 15%)”"),
    Row("A.1-b", "“Input = [CLS] the man went to [MASK] store [SEP] he bought a gallon [MASK] milk [SEP]”"),
    Row("A.1-c", "“the masked LM only make predictions on 15% of tokens”, a left-to-right model on every token"),
    # A.2 Pre-training Procedure
    Row("A.2-a", "“we sample two spans of text …, typically much longer than single sentences”"),
    Row("A.2-b", "“The first sentence receives the A embedding and the second receives the B embedding”"),
    Row("A.2-c", "“sampled such that the combined length is ≤ 512 tokens”"),
    Row("A.2-d", "“masking is applied after WordPiece tokenization …, no special consideration given to partial word pieces”"),
    Row("A.2-e", "“batch size of 256 sequences (256 sequences * 512 tokens = 128,000 tokens/batch)”"),
    Row("A.2-f", "“1,000,000 steps, which is approximately 40 epochs over the 3.3 billion word corpus”"),
    Row("A.2-g", "“We use Adam”: its update"),
    Row("A.2-h", "“learning rate of 1e-4”"),
    Row("A.2-i", "“β₁ = 0.9, β₂ = 0.999”"),
    Row("A.2-j", "“L2 weight decay of 0.01”"),
    Row("A.2-k", "“learning rate warmup over the first 10,000 steps”"),
    Row("A.2-l", "“linear decay of the learning rate”"),
    Row("A.2-m", "“a dropout probability of 0.1 on all layers”"),
    Row("A.2-n", "“a gelu activation (Hendrycks and Gimpel, 2016)”: x Φ(x)"),
    Row("A.2-o", "“the sum of the mean masked LM likelihood and the mean next sentence prediction likelihood”"),
    Row("A.2-p", "“4 Cloud TPUs …, 16 Cloud TPUs … Each pretraining took 4 days to complete”"),
    Row("A.2-q", "“attention is quadratic to the sequence length”"),
    Row("A.2-r", "“sequence length of 128 for 90% of the steps”, then “512”"),
    # A.3 Fine-tuning Procedure
    Row("A.3-a", "“The dropout probability was always kept at 0.1”"),
    Row("A.3-b", "“Batch size: 16, 32”; “Learning rate (Adam): 5e-5, 3e-5, 2e-5”; “Number of epochs: 2, 3, 4”"),
    Row("A.3-c", "“an exhaustive search over the above parameters”, the best on the dev set is chosen"),
    Row("A.3-d", "“large data sets … were far less sensitive to hyperparameter choice”"),
    # A.4 Comparison of BERT, ELMo and OpenAI GPT
    Row("A.4-a", "“BERT learns [SEP], [CLS] and sentence A/B embeddings during pre-training”"),
    Row("A.4-b", "“a task-specific fine-tuning learning rate which performs the best on the development set”"),
    # A.5 Illustrations of Fine-tuning on Different Tasks
    Row("A.5-a", "“incorporating BERT with one additional output layer”"),
    Row("A.5-b", "“(a) and (b) are sequence-level tasks while (c) and (d) are token-level tasks”"),
    # B.1 Detailed Descriptions for the GLUE Benchmark Experiments
    Row("B.1-a", "MNLI: “entailment, contradiction, or neutral”, pairs"),
    Row("B.1-b", "QQP: “binary”, pairs of questions"),
    Row("B.1-c", "QNLI: “binary”, pairs of question and sentence"),
    Row("B.1-d", "SST-2: “binary single-sentence”"),
    Row("B.1-e", "CoLA: “binary single-sentence”"),
    Row("B.1-f", "STS-B: pairs “annotated with a score”"),
    Row("B.1-g", "MRPC: “sentence pairs …, semantically equivalent” or not"),
    Row("B.1-h", "RTE: “binary entailment”, pairs"),
    Row("B.1-i", "WNLI: “we always predicted the majority class”"),
    Row("B.1-j", "“we only report single-task fine-tuning results”; several tasks at once would help RTE"),
    # C.1 Effect of Number of Training Steps
    Row("C.1-a", "Figure 5: “almost 1.0% additional accuracy on MNLI when trained on 1M steps compared to 500k steps”"),
    Row("C.1-b", "“The MLM model does converge slightly slower than the LTR model” and is better “almost immediately”"),
    # C.2 Ablation for Different Masking Procedures
    Row("C.2-a", "Table 8: shares of MASK, SAME and RND are chosen freely"),
    Row("C.2-b", "RND: “replace the target token with another random token”"),
    Row("C.2-c", "“we concatenate the last 4 layers of BERT as the features”"),
    Row("C.2-d", "Table 8: MNLI from 83.6 to 84.4, NER from 94.0 to 95.4"),
)  # fmt: skip
