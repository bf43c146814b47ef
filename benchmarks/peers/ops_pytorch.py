"""Single operations by PyTorch, each by the call that is meant for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from minibert import engines
from peers.operations import ALWAYS_FLOAT, EPS, RATE, STATISTICS, STEP, Arrays, Case
from peers.ops_minibert import Contestant, Run, turned

FORMS = {"erf": "none", "tanh": "tanh"}  # of GELU


class PyTorch(Contestant):
    """Gradients come from `torch.autograd.grad`, the graph of one forward kept; dropout is PyTorch's own."""

    def __init__(self, threads: int, dtype: str = "float32") -> None:
        super().__init__(dtype, threads)
        engines.keep_freed_memory()
        torch.set_num_threads(threads)

    def choose(self, case: Case) -> None:
        """Lay the arguments out as tensors."""
        self._run = None
        wide = torch.bfloat16 if self._dtype == "bfloat16" and case.op not in ALWAYS_FLOAT else torch.float32
        given = {name: torch.from_numpy(x) for name, x in case.given(self._dtype).items()}
        given = {name: x if name in STATISTICS else x.to(wide) for name, x in given.items()}
        self._run = getattr(self, case.op)(case, given)

    def plain(self, x: torch.Tensor) -> np.ndarray:
        """float32 of NumPy."""
        return x.detach().float().numpy()

    def gemm(self, case: Case, given: Arrays) -> Run:
        a, b = turned(case, given)
        c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
        return lambda: (torch.mm(a, b, out=c),)

    def linear_gelu(self, case: Case, given: Arrays) -> Run:
        x, weight, form = given["a"], given["b"].t().contiguous(), FORMS[case.sizes["form"]]
        bias = given["bias"].to(x.dtype)

        def run() -> tuple:
            u = F.linear(x, weight, bias)
            return u, F.gelu(u, approximate=form)

        return run

    def _heads(self, case: Case, given: Arrays) -> tuple[list[torch.Tensor], Callable[[], Any]]:
        """q k v (S,A,n,D), views of qkv, and attention over them."""
        T, n = case.sizes["T"], case.sizes["n"]
        qkv = given["qkv"].view(T // n, n, *given["qkv"].shape[1:]).permute(2, 0, 3, 1, 4)
        q, k, v = (x.detach().requires_grad_() for x in qkv)
        rate = RATE if case.dropout else 0.0
        return [q, k, v], lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=rate)

    @staticmethod
    def _flat(x: torch.Tensor) -> torch.Tensor:
        """x (S,A,n,D) -> (T,A,D), a view."""
        return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])

    def attention(self, case: Case, given: Arrays) -> Run:
        _, forward = self._heads(case, given)
        return lambda: (self._flat(forward()),)

    def attention_backward(self, case: Case, given: Arrays) -> Run:
        leaves, forward = self._heads(case, given)
        y = forward()
        S, A, n, D = y.shape
        backward = self._gradients(y, leaves, given["dy"].view(S, n, A, D).transpose(1, 2))
        return lambda: tuple(map(self._flat, backward()))

    @staticmethod
    def _gradients(y: torch.Tensor, leaves: list[torch.Tensor], dy: torch.Tensor) -> Run:
        return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)

    def _norm(self, given: Arrays) -> tuple[list[torch.Tensor], Callable[[], torch.Tensor]]:
        x, H = given["x"], given["x"].shape[1]
        leaves = [t.requires_grad_() for t in (x, given["gamma"], given["beta"])]
        return leaves, lambda: F.layer_norm(leaves[0], (H,), *leaves[1:], EPS)

    def layer_norm(self, case: Case, given: Arrays) -> Run:
        _, forward = self._norm(given)
        return lambda: (forward(),)

    def layer_norm_backward(self, case: Case, given: Arrays) -> Run:
        leaves, forward = self._norm(given)
        return self._gradients(forward(), leaves, given["dy"])

    def _residual_norm(
        self, case: Case, given: Arrays
    ) -> tuple[list[torch.Tensor], Callable[[], torch.Tensor]]:
        names = ("x", "out", "gamma", "beta", "bias")
        x, out, gamma, beta, bias = leaves = [given[name].requires_grad_() for name in names]
        rate, H = RATE if case.dropout else 0.0, x.shape[1]
        return leaves, lambda: F.layer_norm(
            x + F.dropout(out + bias.to(out.dtype), rate), (H,), gamma, beta, EPS
        )

    def residual_norm(self, case: Case, given: Arrays) -> Run:
        _, forward = self._residual_norm(case, given)
        return lambda: (forward(),)

    def residual_norm_backward(self, case: Case, given: Arrays) -> Run:
        leaves, forward = self._residual_norm(case, given)
        return self._gradients(forward(), leaves, given["dy"])

    def gelu(self, case: Case, given: Arrays) -> Run:
        form = FORMS[case.sizes["form"]]
        return lambda: (F.gelu(given["x"], approximate=form),)

    def gelu_backward(self, case: Case, given: Arrays) -> Run:
        form, x = FORMS[case.sizes["form"]], given["x"].requires_grad_()
        return self._gradients(F.gelu(x, approximate=form), [x], given["dy"])

    def cross_entropy(self, case: Case, given: Arrays) -> Run:
        logits, labels = given["logits"].requires_grad_(), given["labels"].long()

        def run() -> tuple:
            nll = F.cross_entropy(logits.float(), labels, reduction="none")
            return nll, *torch.autograd.grad(nll.sum(), [logits])

        return run

    def gather(self, case: Case, given: Arrays) -> Run:
        ids = given["ids"].long()
        return lambda: (F.embedding(ids, given["table"]),)

    def scatter(self, case: Case, given: Arrays) -> Run:
        ids = given["ids"].long()
        return lambda: (given["table"].index_add_(0, ids, given["rows"]),)

    def global_norm(self, case: Case, given: Arrays) -> Run:
        return lambda: (torch.linalg.vector_norm(given["grads"]).view(1),)

    def adamw(self, case: Case, given: Arrays) -> Run:
        """Fused AdamW over the pieces of the buffer that decay and the others."""
        split: dict[bool, list[torch.Tensor]] = {True: [], False: []}
        state: dict[torch.Tensor, tuple] = {}
        edges = [0, *given["decayed"].flatten().tolist(), case.sizes["N"]]
        for number, (begin, end) in enumerate(zip(edges, edges[1:], strict=False)):
            if begin < end:
                piece = given["params"][begin:end].requires_grad_()
                piece.grad = given["grads"][begin:end]
                split[number % 2 == 1].append(piece)
                state[piece] = given["m"][begin:end], given["v"][begin:end]
        optimizer = torch.optim.AdamW(
            [
                {"params": split[True], "weight_decay": STEP["weight_decay"]},
                {"params": split[False], "weight_decay": 0.0},
            ],
            lr=STEP["lr"],
            betas=(STEP["beta1"], STEP["beta2"]),
            eps=STEP["eps"],
            fused=True,
        )
        for piece, (m, v) in state.items():
            steps = torch.tensor(float(STEP["step"] - 1))
            optimizer.state[piece] = {"step": steps, "exp_avg": m, "exp_avg_sq": v}

        def run() -> tuple:
            optimizer.step()
            return given["params"], given["m"], given["v"]

        return run
