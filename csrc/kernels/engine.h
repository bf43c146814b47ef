// The kernels as Python calls them: arrays are checked (arrays.h), and kernels run on them without the GIL. A part of
// bindings.cpp, which alone includes it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "arrays.h"
#include "gil.h"
#include "kernels.h"
#include "memory.h"

namespace mb {
namespace {

constexpr int kMostThreads = 4096; // as in minibert/engines; kernels take small multiples of it for granted

// An instruction set, a pool of threads, and whether matrix products are those of bfloat16.
class Engine {
  public:
    Engine(const std::string &isa, int threads, bool narrow)
        : kernels_(find(isa.c_str())), pool_(threads), narrow_(narrow) {
        if (kernels_ == nullptr) {
            std::string names;
            for (const Kernels *one : available()) {
                names += std::string(names.empty() ? "" : ", ") + one->name;
            }
            throw py::value_error("isa='" + isa + "' can't be run here; choose from " + names);
        }
        if (threads < 1 || threads > kMostThreads) {
            throw py::value_error("threads=" + std::to_string(threads) + " is not a number from 1 to " +
                                  std::to_string(kMostThreads));
        }
    }

    // Lay out a matrix that is read-only for the products in which it will stand on the right, as long as this engine
    // lives; quantized, where `int8`. It is known by where it lies and how.
    void keep(const py::array &weight, bool int8) {
        auto W = operand("weight", weight);
        if (weight.writeable()) {
            refuse("weight", "is writeable; what is kept may not change");
        }
        if (int8 && !has_int8()) {
            refuse("int8", std::string("can't be multiplied by ") + kernels_->name);
        }
        if (int8 && W.rows > MB_ISA::kDeepest) {
            refuse("weight", "has too many rows for sums of 32 bits");
        }
        int64_t size = int8 ? kernels_->bytes_size(W.columns, W.rows)
                            : kernels_->laid_out_size(W.columns, W.rows, narrow_);
        size_t bytes = sizeof(float) * static_cast<size_t>(size);
        Panels panels{static_cast<float *>(take(bytes)), [bytes](float *data) { give(data, bytes); }};
        if (int8) {
            kernels_->lay_out_bytes(pool_, W.columns, W.rows, W.view, panels.get());
        } else {
            kernels_->lay_out(pool_, W.columns, W.rows, W.view, panels.get(), narrow_);
        }
        kept_.insert_or_assign(place_of(W), Kept{weight, panels, int8});
    }

    const char *isa() const { return kernels_->name; }
    bool has_int8() const { return kernels_->bytes_size(1, 1) > 0; }
    int threads() const { return pool_.threads(); }

    void gemm(const py::array &a, const py::array &b, const py::array &out, bool add) {
        auto A = operand("a", a);
        auto B = right("b", b);
        auto C = rows<float>("out", out);
        expect("b", B.rows, A.columns, "rows");
        expect("out", C.rows, A.rows, "rows");
        expect("out", C.columns, B.columns, "columns");
        WithoutGil released;
        kernels_->gemm(pool_, A.rows, B.columns, A.columns, A.view, B.view, C.data, C.row, add, {}, narrow_);
    }

    void linear(const py::array &x, const py::array &weight, const py::object &bias, const py::array &y) {
        by_type(y, [&](auto zero) {
            auto X = operand("x", x);
            auto W = right("weight", weight);
            auto Y = rows<decltype(zero)>("y", y);
            auto b = line_or_none<const float>("bias", bias);
            expect("weight", W.rows, X.columns, "rows");
            expect("y", Y.rows, X.rows, "rows");
            expect("y", Y.columns, W.columns, "columns");
            if (b.data != nullptr) {
                expect("bias", b.size, W.columns, "elements");
            }
            WithoutGil released;
            kernels_->on<decltype(zero)>().linear(pool_, X.rows, W.columns, X.columns, X.view, W.view, b.data,
                                                  Y.data, Y.row, narrow_);
        });
    }

    void linear_gelu(const py::array &x, const py::array &weight, const py::array &bias, bool tanh_form,
                     const py::array &u, const py::array &y) {
        by_type(y, [&](auto zero) {
            using T = decltype(zero);
            auto X = operand("x", x);
            auto W = right("weight", weight);
            auto b = line<const float>("bias", bias);
            auto *U = whole<T>("u", u, X.rows, W.columns);
            auto *Y = whole<T>("y", y, X.rows, W.columns);
            expect("weight", W.rows, X.columns, "rows");
            expect("bias", b.size, W.columns, "elements");
            WithoutGil released;
            kernels_->on<T>().linear_gelu(pool_, X.rows, W.columns, X.columns, X.view, W.view, b.data,
                                          tanh_form, U, Y, narrow_);
        });
    }

    void linear_softmax_cross_entropy(const py::array &x, const py::array &weight, const py::array &bias,
                                      const py::array &labels, const py::array &gradient,
                                      const py::array &nll, const py::array &best) {
        by_type(gradient, [&](auto zero) {
            auto X = operand("x", x);
            auto W = right("weight", weight);
            auto *b = sized<const float>("bias", bias, W.columns);
            auto l = indices("labels", labels, W.columns);
            auto G = rows<decltype(zero)>("gradient", gradient);
            expect("weight", W.rows, X.columns, "rows");
            expect("labels", l.size, X.rows, "elements");
            expect("gradient", G.rows, X.rows, "rows"), expect("gradient", G.columns, W.columns, "columns");
            auto *n = sized<float>("nll", nll, X.rows);
            auto *found = sized<int32_t>("best", best, X.rows);
            WithoutGil released;
            kernels_->on<decltype(zero)>().linear_softmax_cross_entropy(pool_, X.rows, W.columns, X.columns,
                                                                        X.view, W.view, b, l.data, G.data,
                                                                        G.row, n, found, narrow_);
        });
    }

    void linear_gelu_backward(const py::array &dy, const py::array &weight, bool tanh_form,
                              const py::array &u, const py::array &du) {
        by_type(u, [&](auto zero) {
            using T = decltype(zero);
            auto dY = operand("dy", dy);
            auto W = right("weight", weight);
            auto *U = whole<T>("u", u, dY.rows, W.columns);
            auto *dU = whole<T>("du", du, dY.rows, W.columns);
            expect("weight", W.rows, dY.columns, "rows");
            WithoutGil released;
            kernels_->on<T>().linear_gelu_backward(pool_, dY.rows, W.columns, dY.columns, dY.view, W.view,
                                                   tanh_form, U, dU, narrow_);
        });
    }

    void attention(const py::array &q, const py::array &k, const py::array &v, const py::array &cu_seqlens,
                   bool causal, const py::tuple &drop, const py::array &y, const py::array &softmax,
                   const py::object &queries) {
        by_type(q, [&](auto zero) {
            using X = decltype(zero);
            auto Q = tokens<const X>("q", q), K = tokens<const X>("k", k), V = tokens<const X>("v", v);
            auto Y = tokens<X>("y", y);
            auto *S = whole<float>("softmax", softmax, Q.T_ * Q.A, 2);
            auto begin = borders(cu_seqlens, queries, Q, K, causal);
            like("v", V, K), like("y", Y, Q);
            Drop dropped = dropout_of(drop, Q.T_);
            WithoutGil released;
            kernels_->on<X>().attention(pool_, begin.tokens.size - 1, begin.tokens.data, begin.queries.data,
                                        Q.A, Q.D, {Q.data, Q.stride}, {K.data, K.stride}, {V.data, V.stride},
                                        causal, dropped, {Y.data, Y.stride}, S);
        });
    }

    void attention_backward(const py::array &dy, const py::array &q, const py::array &k, const py::array &v,
                            const py::array &cu_seqlens, bool causal, const py::tuple &drop,
                            const py::array &y, const py::array &softmax, const py::array &dq,
                            const py::array &dk, const py::array &dv, const py::object &queries) {
        by_type(q, [&](auto zero) {
            using X = decltype(zero);
            auto Q = tokens<const X>("q", q), K = tokens<const X>("k", k), V = tokens<const X>("v", v);
            auto Y = tokens<const X>("y", y), dY = tokens<const X>("dy", dy);
            auto dQ = tokens<X>("dq", dq), dK = tokens<X>("dk", dk);
            auto dV = tokens<X>("dv", dv);
            auto *S = whole<const float>("softmax", softmax, Q.T_ * Q.A, 2);
            auto begin = borders(cu_seqlens, queries, Q, K, causal);
            like("v", V, K), like("y", Y, Q), like("dy", dY, Q);
            like("dq", dQ, Q), like("dk", dK, K), like("dv", dV, K);
            Drop dropped = dropout_of(drop, Q.T_);
            WithoutGil released;
            kernels_->on<X>().attention_backward(
                pool_, begin.tokens.size - 1, begin.tokens.data, begin.queries.data, Q.A, Q.D,
                {Q.data, Q.stride}, {K.data, K.stride}, {V.data, V.stride}, causal, dropped,
                {dY.data, dY.stride}, {Y.data, Y.stride}, S, {dQ.data, dQ.stride}, {dK.data, dK.stride},
                {dV.data, dV.stride});
        });
    }

    void gelu(const py::array &x, const py::array &y, bool tanh_form) {
        auto X = all<const float>("x", x);
        auto *Y = like<float>("y", y, x);
        WithoutGil released;
        kernels_->gelu(pool_, X.size, X.data, Y, tanh_form);
    }

    void gelu_backward(const py::array &dy, const py::array &x, const py::array &dx, bool tanh_form) {
        auto X = all<const float>("x", x);
        auto *dY = like<const float>("dy", dy, x);
        auto *dX = like<float>("dx", dx, x);
        WithoutGil released;
        kernels_->gelu_backward(pool_, X.size, dY, X.data, dX, tanh_form);
    }

    void tanh(const py::array &x, const py::array &y) {
        auto X = all<const float>("x", x);
        auto *Y = like<float>("y", y, x);
        WithoutGil released;
        kernels_->tanh(pool_, X.size, X.data, Y);
    }

    void tanh_backward(const py::array &dy, const py::array &y, const py::array &dx) {
        auto Y = all<const float>("y", y);
        auto *dY = like<const float>("dy", dy, y);
        auto *dX = like<float>("dx", dx, y);
        WithoutGil released;
        kernels_->tanh_backward(pool_, Y.size, dY, Y.data, dX);
    }

    void dropout(const py::array &x, const py::array &y, const py::tuple &drop) {
        auto X = whole_rows<const float>("x", x);
        auto *Y = whole<float>("y", y, X.rows, X.columns);
        if (drop.empty()) {
            refuse("drop", "is empty, and there is nothing else to do here");
        }
        Drop dropped = dropout_of(drop, X.rows);
        WithoutGil released;
        kernels_->dropout(pool_, X.rows, X.columns, X.data, Y, dropped);
    }

    void column_sums(const py::array &x, const py::object &weights, const py::array &sums, bool add) {
        by_type(x, [&](auto zero) {
            auto X = rows<const decltype(zero)>("x", x);
            auto W = line_or_none<const float>("weights", weights);
            auto S = line<float>("sums", sums);
            if (W.data != nullptr) {
                expect("weights", W.size, X.rows, "elements");
            }
            expect("sums", S.size, X.columns, "elements");
            WithoutGil released;
            kernels_->on<decltype(zero)>().column_sums(pool_, X.rows, X.columns, X.data, X.row, W.data,
                                                       S.data, add);
        });
    }

    void scale_rows(const py::array &x, const py::array &weights) {
        auto X = rows<float>("x", x);
        auto *w = sized<const float>("weights", weights, X.rows);
        WithoutGil released;
        kernels_->scale_rows(pool_, X.rows, X.columns, X.data, X.row, w);
    }

    void layer_norm(const py::array &x, const py::array &gamma, const py::array &beta, float eps,
                    const py::array &y, const py::array &mean, const py::array &inverse) {
        auto X = whole_rows<const float>("x", x);
        int64_t T = X.rows, H = X.columns;
        auto *g = sized<const float>("gamma", gamma, H), *b = sized<const float>("beta", beta, H);
        auto *out = whole<float>("y", y, T, H);
        auto *m = sized<float>("mean", mean, T), *i = sized<float>("inverse", inverse, T);
        WithoutGil released;
        kernels_->layer_norm(pool_, T, H, X.data, g, b, eps, out, m, i);
    }

    void layer_norm_backward(const py::array &dy, const py::array &x, const py::array &mean,
                             const py::array &inverse, const py::array &gamma, const py::array &dx,
                             const py::array &dgamma, const py::array &dbeta, bool add) {
        auto X = whole_rows<const float>("x", x);
        int64_t T = X.rows, H = X.columns;
        auto *upstream = whole<const float>("dy", dy, T, H);
        auto *m = sized<const float>("mean", mean, T), *i = sized<const float>("inverse", inverse, T);
        auto *g = sized<const float>("gamma", gamma, H);
        auto *out = whole<float>("dx", dx, T, H);
        auto *dg = sized<float>("dgamma", dgamma, H), *db = sized<float>("dbeta", dbeta, H);
        WithoutGil released;
        kernels_->layer_norm_backward(pool_, T, H, upstream, X.data, m, i, g, out, dg, db, add);
    }

    void dropout_residual_layer_norm(const py::array &x, const py::array &out, const py::array &bias,
                                     const py::tuple &drop, const py::array &gamma, const py::array &beta,
                                     float eps, const py::array &sum, const py::array &y,
                                     const py::array &mean, const py::array &inverse) {
        by_type(x, [&](auto zero) {
            using A = decltype(zero);
            auto X = whole_rows<const A>("x", x);
            int64_t T = X.rows, H = X.columns;
            auto *o = whole<const float>("out", out, T, H);
            auto *c = sized<const float>("bias", bias, H);
            auto *g = sized<const float>("gamma", gamma, H), *b = sized<const float>("beta", beta, H);
            auto *s = whole<A>("sum", sum, T, H), *result = whole<A>("y", y, T, H);
            auto *m = sized<float>("mean", mean, T), *i = sized<float>("inverse", inverse, T);
            Drop dropped = dropout_of(drop, T);
            WithoutGil released;
            kernels_->on<A>().dropout_residual_layer_norm(pool_, T, H, X.data, o, c, dropped, g, b, eps, s,
                                                          result, m, i);
        });
    }

    void dropout_residual_layer_norm_backward(const py::array &dy, const py::array &sum,
                                              const py::array &mean, const py::array &inverse,
                                              const py::array &gamma, const py::tuple &drop,
                                              const py::array &dsum, const py::object &dout,
                                              const py::array &dgamma, const py::array &dbeta,
                                              const py::array &dbias) {
        by_type(sum, [&](auto zero) {
            using X = decltype(zero);
            auto S = whole_rows<const X>("sum", sum);
            int64_t T = S.rows, H = S.columns;
            auto *upstream = whole<const float>("dy", dy, T, H);
            auto *m = sized<const float>("mean", mean, T), *i = sized<const float>("inverse", inverse, T);
            auto *g = sized<const float>("gamma", gamma, H);
            auto *ds = whole<float>("dsum", dsum, T, H);
            X *d_out = nullptr;
            if (!drop.empty() || !dout.is_none()) {
                d_out = whole<X>("dout", array_of("dout", dout), T, H);
            }
            auto *dg = sized<float>("dgamma", dgamma, H), *db = sized<float>("dbeta", dbeta, H);
            auto *dc = sized<float>("dbias", dbias, H);
            Drop dropped = dropout_of(drop, T);
            WithoutGil released;
            kernels_->on<X>().dropout_residual_layer_norm_backward(pool_, T, H, upstream, S.data, m, i, g,
                                                                   dropped, ds, d_out, dg, db, dc, true);
        });
    }

    void embedding_layer_norm(const py::array &ids, const py::array &word, const py::array &positions,
                              const py::array &position, const py::array &segments, const py::array &segment,
                              const py::array &gamma, const py::array &beta, float eps, const py::tuple &drop,
                              const py::array &sum, const py::array &y, const py::array &mean,
                              const py::array &inverse) {
        auto W = whole_rows<const float>("word", word), P = whole_rows<const float>("position", position);
        auto G = whole_rows<const float>("segment", segment);
        int64_t H = W.columns;
        auto w = indices("ids", ids, W.rows), p = indices("positions", positions, P.rows);
        auto s = indices("segments", segments, G.rows);
        int64_t T = w.size;
        expect("position", P.columns, H, "columns"), expect("segment", G.columns, H, "columns");
        expect("positions", p.size, T, "elements"), expect("segments", s.size, T, "elements");
        auto *g = sized<const float>("gamma", gamma, H), *b = sized<const float>("beta", beta, H);
        auto *m = sized<float>("mean", mean, T), *i = sized<float>("inverse", inverse, T);
        Drop dropped = dropout_of(drop, T);
        by_type(y, [&](auto zero) {
            using X = decltype(zero);
            auto *total = whole<X>("sum", sum, T, H), *result = whole<X>("y", y, T, H);
            WithoutGil released;
            kernels_->on<X>().embedding_layer_norm(pool_, T, H, w.data, W.data, p.data, P.data, s.data,
                                                   G.data, g, b, eps, dropped, total, result, m, i);
        });
    }

    void embedding_layer_norm_backward(const py::array &dy, const py::array &sum, const py::array &mean,
                                       const py::array &inverse, const py::array &gamma,
                                       const py::tuple &drop, const py::array &dsum, const py::array &dgamma,
                                       const py::array &dbeta) {
        by_type(sum, [&](auto zero) {
            using X = decltype(zero);
            auto S = whole_rows<const X>("sum", sum);
            int64_t T = S.rows, H = S.columns;
            auto *upstream = whole<const float>("dy", dy, T, H);
            auto *m = sized<const float>("mean", mean, T), *i = sized<const float>("inverse", inverse, T);
            auto *g = sized<const float>("gamma", gamma, H);
            auto *ds = whole<float>("dsum", dsum, T, H);
            auto *dg = sized<float>("dgamma", dgamma, H), *db = sized<float>("dbeta", dbeta, H);
            Drop dropped = dropout_of(drop, T);
            WithoutGil released;
            kernels_->on<X>().embedding_layer_norm_backward(pool_, T, H, upstream, S.data, m, i, g, dropped,
                                                            ds, dg, db, true);
        });
    }

    // The logits become the gradient.
    void softmax_cross_entropy(const py::array &logits, const py::array &labels, const py::array &nll,
                               const py::array &best) {
        auto L = rows<float>("logits", logits);
        auto l = indices("labels", labels, L.columns);
        expect("labels", l.size, L.rows, "elements");
        auto *n = sized<float>("nll", nll, L.rows);
        auto *b = sized<int32_t>("best", best, L.rows);
        WithoutGil released;
        kernels_->softmax_cross_entropy(pool_, L.rows, L.columns, L.data, L.row, l.data, n, b);
    }

    void gather(const py::array &ids, const py::array &table, const py::array &out) {
        by_type(table, [&](auto zero) {
            auto W = whole_rows<const decltype(zero)>("table", table);
            auto i = indices("ids", ids, W.rows);
            auto *o = whole<float>("out", out, i.size, W.columns);
            WithoutGil released;
            kernels_->on<decltype(zero)>().gather(pool_, i.size, W.columns, i.data, W.data, o);
        });
    }

    void scatter_add(const py::array &ids, const py::array &rows, const py::array &table) {
        auto W = whole_rows<float>("table", table);
        auto i = indices("ids", ids, W.rows);
        auto *r = whole<const float>("rows", rows, i.size, W.columns);
        WithoutGil released;
        kernels_->scatter_add(pool_, i.size, W.columns, i.data, r, W.data);
    }

    void accumulate(const py::array &total, const py::array &extra) {
        auto X = all<const float>("extra", extra);
        auto *t = like<float>("total", total, extra);
        WithoutGil released;
        kernels_->accumulate(pool_, X.size, t, X.data);
    }

    void clear(const py::array &x) {
        auto X = all<float>("x", x);
        WithoutGil released;
        kernels_->clear(pool_, X.size, X.data);
    }

    double global_norm(const py::array &x) {
        auto X = line<const float>("x", x);
        WithoutGil released;
        return kernels_->global_norm(pool_, X.size, X.data);
    }

    void orthogonalise(const py::array &x) {
        auto X = whole_rows<float>("x", x);
        if (X.rows > X.columns) {
            refuse("x", "has more rows than columns");
        }
        WithoutGil released;
        kernels_->orthogonalise(pool_, X.rows, X.columns, X.data, narrow_);
    }

    void adamw(const py::array &params, const py::array &grads, const py::array &m, const py::array &v,
               const py::array &decayed, double lr, double beta1, double beta2, double eps,
               double weight_decay, double m_scale, double v_scale, double clip, bool clears) {
        auto P = line<float>("params", params);
        auto *g = clears ? sized<float>("grads", grads, P.size)
                         : const_cast<float *>(sized<const float>("grads", grads, P.size));
        auto *first = sized<float>("m", m, P.size), *second = sized<float>("v", v, P.size);
        auto *ranges = checked<const int64_t>("decayed", decayed, 2);
        int64_t K = decayed.shape(0), end = 0;
        expect("decayed", decayed.shape(1), 2, "columns");
        for (int64_t k = 0; k < 2 * K; ++k) {
            if (ranges[k] < end || ranges[k] > P.size) {
                refuse("decayed", "has ranges that fall back or go beyond the parameters");
            }
            end = ranges[k];
        }
        WithoutGil released;
        kernels_->adamw(pool_, P.size, P.data, g, first, second, K, ranges,
                        {lr, beta1, beta2, eps, weight_decay, m_scale, v_scale, clip, clears});
    }

    double multiply_add_rate(double seconds, bool narrow) {
        WithoutGil released;
        return kernels_->multiply_add_rate(pool_, seconds, narrow);
    }

  private:
    using Place = std::tuple<const void *, int64_t, int64_t, int64_t, int64_t>;
    using Panels = std::shared_ptr<float>;
    struct Kept {
        py::array weight; // so that nothing else comes to lie there
        Panels panels;
        bool int8;
    };

    static Place place_of(const Operand &x) {
        return {x.view.data, x.rows, x.columns, x.view.row, x.view.column};
    }

    // The right operand of a product, laid out if it is kept. It holds the panels, which another thread may lay out anew.
    struct Right : Operand {
        Panels panels;
    };
    Right right(const char *name, const py::array &array) const {
        Right found{operand(name, array), nullptr};
        if (!kept_.empty() && !array.writeable()) {
            if (auto kept = kept_.find(place_of(found)); kept != kept_.end()) {
                found.panels = kept->second.panels;
                found.view.panels = found.panels.get();
                found.view.bytes = kept->second.int8;
            }
        }
        return found;
    }

    const Kernels *kernels_;
    Pool pool_;
    bool narrow_;
    std::map<Place, Kept> kept_;
};

} // namespace
} // namespace mb
