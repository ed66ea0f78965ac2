// Fused attention, for programs that ask for one of CUDA's backends by name: the formulas of
// scaled_dot_product_attention in float32, in the tensors and with the results of these operators. Dropout is refused,
// because its mask is drawn anew in the backward pass from a state that only CUDA's kernels understand.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include "substitutes.h"

namespace softgpu::aten {
namespace {

using at::Tensor;

constexpr const char *kEfficient = "efficient", *kFlash = "flash";

struct Problem {
  Tensor query, key, value;  // in float32
  Tensor bias;               // undefined if there is none
  double scale;
  bool causal;
};

Problem Prepare(const char* backend, const Tensor& query, const Tensor& key, const Tensor& value,
                const std::optional<Tensor>& bias, double dropout, bool causal, std::optional<double> scale) {
  TORCH_CHECK(dropout == 0, "aten::_scaled_dot_product_", backend,
              "_attention with dropout does not run on the software GPU; leave the backends flash and efficient off, "
              "which is the default here");
  const auto wide = [](const Tensor& tensor) { return tensor.to(at::kFloat); };
  return {wide(query),
          wide(key),
          wide(value),
          bias && bias->defined() ? wide(*bias) : Tensor(),
          scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1)))),
          causal};
}

Tensor Scores(const Problem& problem) {
  Tensor scores = at::matmul(problem.query, problem.key.transpose(-2, -1)) * problem.scale;
  if (problem.bias.defined()) scores = scores + problem.bias;
  if (problem.causal) {
    const Tensor seen = at::ones({scores.size(-2), scores.size(-1)}, scores.options().dtype(at::kBool)).tril();
    scores = scores.masked_fill(seen.logical_not(), -INFINITY);
  }
  return scores;
}

// The output and the logarithm of the sum of exponentials of each row.
std::tuple<Tensor, Tensor> Forward(const Problem& problem, at::ScalarType type) {
  const Tensor scores = Scores(problem);
  const Tensor out = at::matmul(scores.softmax(-1), problem.value);
  return {out.transpose(1, 2).contiguous().transpose(1, 2).to(type), scores.logsumexp(-1)};
}

struct Gradients {
  Tensor query, key, value, bias;
};

Gradients Backward(const Problem& problem, const Tensor& grad, const Tensor& out, const Tensor& logsumexp,
                   at::ScalarType type) {
  const Tensor wide = grad.to(at::kFloat);
  const Tensor weights = (Scores(problem) - logsumexp.slice(-1, 0, problem.query.size(-2)).unsqueeze(-1)).exp();
  const Tensor mean = (wide * out.to(at::kFloat)).sum(-1, true);
  const Tensor scores = weights * (at::matmul(wide, problem.value.transpose(-2, -1)) - mean);
  return {(at::matmul(scores, problem.key) * problem.scale).to(type),
          (at::matmul(scores.transpose(-2, -1), problem.query) * problem.scale).to(type),
          at::matmul(weights.transpose(-2, -1), wide).to(type), scores};
}

Tensor NoState(const Tensor& like) { return at::zeros({}, like.options().dtype(at::kLong)); }

std::tuple<Tensor, Tensor, Tensor, Tensor> Efficient(const Tensor& query, const Tensor& key, const Tensor& value,
                                                     const std::optional<Tensor>& bias, bool, double dropout,
                                                     bool causal, std::optional<double> scale) {
  const auto [out, logsumexp] =
      Forward(Prepare(kEfficient, query, key, value, bias, dropout, causal, scale), query.scalar_type());
  return {out, logsumexp, NoState(query), NoState(query)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> EfficientBackward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                             const Tensor& value, const Tensor& bias, const Tensor& out,
                                                             const Tensor& logsumexp, const Tensor&, const Tensor&,
                                                             double dropout, std::array<bool, 4> wanted, bool causal,
                                                             std::optional<double> scale) {
  if (!grad.defined()) return {};
  const Problem problem = Prepare(kEfficient, query, key, value, bias, dropout, causal, scale);
  const Gradients found = Backward(problem, grad, out, logsumexp, query.scalar_type());
  Tensor of_bias;
  if (wanted[3] && bias.defined()) of_bias = found.bias.sum_to_size(bias.sizes()).to(bias.scalar_type());
  return {found.query, found.key, found.value, of_bias};
}

using FlashResult = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

FlashResult Flash(const Tensor& query, const Tensor& key, const Tensor& value, double dropout, bool causal, bool,
                  std::optional<double> scale) {
  const auto [out, logsumexp] =
      Forward(Prepare(kFlash, query, key, value, std::nullopt, dropout, causal, scale), query.scalar_type());
  return {out,
          logsumexp,
          Tensor(),
          Tensor(),
          query.size(-2),
          key.size(-2),
          NoState(query),
          NoState(query),
          at::empty({0}, query.options())};
}

std::tuple<Tensor, Tensor, Tensor> FlashBackward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                 const Tensor& value, const Tensor& out, const Tensor& logsumexp,
                                                 const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double dropout,
                                                 bool causal, const Tensor&, const Tensor&,
                                                 std::optional<double> scale) {
  const Problem problem = Prepare(kFlash, query, key, value, std::nullopt, dropout, causal, scale);
  const Gradients found = Backward(problem, grad, out, logsumexp, query.scalar_type());
  return {found.query, found.key, found.value};
}

}  // namespace

void RegisterAttention(torch::Library* library) {
  library->impl("_scaled_dot_product_efficient_attention", &Efficient);
  library->impl("_scaled_dot_product_efficient_attention_backward", &EfficientBackward);
  library->impl("_scaled_dot_product_flash_attention", &Flash);
  library->impl("_scaled_dot_product_flash_attention_backward", &FlashBackward);
}

}  // namespace softgpu::aten
