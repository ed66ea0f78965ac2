#include "substitutes.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "call.h"
#include "random.h"

namespace softgpu::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

bool Has(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

// ---- SyncBatchNorm ----

// The type in which CUDA sums up.
at::ScalarType SumType(const Tensor& tensor) { return at::toOpMathType(tensor.scalar_type()); }

// All dimensions but that of the channels.
std::vector<int64_t> AllButChannels(const Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < input.dim(); ++i) {
    if (i != 1) dims.push_back(i);
  }
  return dims;
}

// A value for each channel, beside `input`.
Tensor PerChannel(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = -1;
  return values.reshape(sizes);
}

Two BatchNormStats(const Tensor& input, double eps) {
  const Tensor wide = input.to(SumType(input));
  const Tensor mean = wide.mean(AllButChannels(input));
  const Tensor variance = (wide - PerChannel(mean, input)).square().mean(AllButChannels(input));
  return {mean, (variance + eps).rsqrt()};
}

Tensor BatchNormElement(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                        const Tensor& mean, const Tensor& invstd, double) {
  Tensor out = (input.to(SumType(input)) - PerChannel(mean, input)) * PerChannel(invstd, input);
  if (Has(weight)) out = out * PerChannel(*weight, input);
  if (Has(bias)) out = out + PerChannel(*bias, input);
  return out.to(input.scalar_type());
}

Tensor& BatchNormElementOut(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                            const Tensor& mean, const Tensor& invstd, double eps, Tensor& out) {
  return out.resize_(input.sizes()).copy_(BatchNormElement(input, weight, bias, mean, invstd, eps));
}

// Joins the statistics of several parts. Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm.
Two BatchNormGatherCounts(const Tensor&, const Tensor& mean, const Tensor& invstd, const OptionalTensor& running_mean,
                          const OptionalTensor& running_var, double momentum, double eps, const Tensor& counts) {
  const Tensor parts = counts.to(mean.scalar_type()).reshape({-1, 1}), total = parts.sum();
  const Tensor joined = (mean * parts).sum(0) / total;
  const Tensor squares = ((invstd.square().reciprocal() - eps + (mean - joined).square()) * parts).sum(0);
  if (Has(running_mean)) running_mean->mul_(1 - momentum).add_(joined.to(running_mean->scalar_type()), momentum);
  if (Has(running_var)) {
    running_var->mul_(1 - momentum).add_((squares / (total - 1)).to(running_var->scalar_type()), momentum);
  }
  return {joined, (squares / total + eps).rsqrt()};
}

Two BatchNormGather(const Tensor& input, const Tensor& mean, const Tensor& invstd, const OptionalTensor& running_mean,
                    const OptionalTensor& running_var, double momentum, double eps, int64_t count) {
  const Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return BatchNormGatherCounts(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

Four BatchNormBackwardReduce(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                             const OptionalTensor& weight, bool of_input, bool of_weight, bool of_bias) {
  const Tensor wide = grad.to(SumType(input));
  const Tensor sum = wide.sum(AllButChannels(input));
  const Tensor product = (wide * (input.to(SumType(input)) - PerChannel(mean, input))).sum(AllButChannels(input));
  const at::ScalarType type = Has(weight) ? weight->scalar_type() : input.scalar_type();
  return {of_input ? sum : Tensor(), of_input ? product : Tensor(), of_weight ? (product * invstd).to(type) : Tensor(),
          of_bias ? sum.to(type) : Tensor()};
}

Tensor BatchNormBackwardElement(const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                const OptionalTensor& weight, const Tensor& sum, const Tensor& product,
                                const Tensor& count) {
  const Tensor total = count.sum().to(mean.scalar_type());
  const Tensor slope = product / total * invstd.square();
  const Tensor centered = input.to(SumType(input)) - PerChannel(mean, input);
  const Tensor inner = grad.to(SumType(input)) - PerChannel(sum / total, input) - centered * PerChannel(slope, input);
  const Tensor scale = Has(weight) ? *weight * invstd : invstd;
  return (inner * PerChannel(scale, input)).to(input.scalar_type());
}

// ---- dropout ----

Two NativeDropout(const Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true) || input.numel() == 0) return {input.clone(), at::ones_like(input, at::kBool)};
  const Tensor mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p, RunningGenerator());
  return {input.mul(mask).mul_(p == 1 ? 0.0 : 1 / (1 - p)), mask};
}

Two FusedDropout(const Tensor& input, double keep, std::optional<at::Generator> generator) {
  const Tensor mask = at::empty_like(input, input.options().dtype(at::kByte)).bernoulli_(keep, generator);
  return {input.mul(mask).mul_(1 / keep), mask};
}

Tensor MaskedScale(const Tensor& input, const Tensor& mask, double scale) { return input.mul(mask).mul_(scale); }

// ---- cells of recurrent networks ----

Tensor WithBias(const Tensor& gates, const OptionalTensor& bias) { return Has(bias) ? gates + *bias : gates; }

Three LstmCell(const Tensor& input, const Tensor& hidden, const Tensor& cx, const OptionalTensor& input_bias,
               const OptionalTensor& hidden_bias) {
  const auto gates = (WithBias(input, input_bias) + WithBias(hidden, hidden_bias)).chunk(4, 1);
  const Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(), out = gates[3].sigmoid();
  const Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

Three LstmCellBackward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const Tensor& cx, const Tensor& cy,
                       const Tensor& workspace, bool has_bias) {
  if (!Has(grad_hy) && !Has(grad_cy)) return {};
  const auto gates = workspace.chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor squashed = cy.tanh(), hy = Has(grad_hy) ? *grad_hy : at::zeros_like(cy);
  Tensor inner = hy * out * (1 - squashed.square());
  if (Has(grad_cy)) inner = inner + *grad_cy;
  const Tensor grad = at::cat({inner * cell * in * (1 - in), inner * cx * forget * (1 - forget),
                               inner * in * (1 - cell.square()), hy * squashed * out * (1 - out)},
                              1);
  return {grad, inner * forget, has_bias ? grad.sum(0) : Tensor()};
}

Two GruCell(const Tensor& input, const Tensor& hidden, const Tensor& hx, const OptionalTensor& input_bias,
            const OptionalTensor& hidden_bias) {
  const auto from_input = WithBias(input, input_bias).chunk(3, 1),
             from_hidden = WithBias(hidden, hidden_bias).chunk(3, 1);
  const Tensor reset = (from_input[0] + from_hidden[0]).sigmoid(), update = (from_input[1] + from_hidden[1]).sigmoid();
  const Tensor fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

Five GruCellBackward(const Tensor& grad, const Tensor& workspace, bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3], &hidden = saved[4];
  const Tensor of_fresh = grad * (1 - update) * (1 - fresh.square());
  const Tensor of_reset = of_fresh * hidden * (1 - reset) * reset;
  const Tensor of_update = grad * (hx - fresh) * update * (1 - update);
  const Tensor to_input = at::cat({of_reset, of_update, of_fresh}, 1);
  const Tensor to_hidden = at::cat({of_reset, of_update, of_fresh * reset}, 1);
  return {to_input, to_hidden, grad * update, has_bias ? to_input.sum(0) : Tensor(),
          has_bias ? to_hidden.sum(0) : Tensor()};
}

// ---- softmax of 16 bits with a result of 32, as autocast wants it ----

Tensor Softmax(const Tensor& input, int64_t dim, bool widen) {
  return at::_softmax(widen ? input.to(at::kFloat) : input, dim, false);
}
Tensor LogSoftmax(const Tensor& input, int64_t dim, bool widen) {
  return at::_log_softmax(widen ? input.to(at::kFloat) : input, dim, false);
}
Tensor SoftmaxBackward(const Tensor& grad, const Tensor& output, int64_t dim, at::ScalarType type) {
  return at::_softmax_backward_data(grad, output, dim, grad.scalar_type()).to(type);
}
Tensor LogSoftmaxBackward(const Tensor& grad, const Tensor& output, int64_t dim, at::ScalarType type) {
  return at::_log_softmax_backward_data(grad, output, dim, grad.scalar_type()).to(type);
}

// ---- others ----

Two RmsNormBackward(const Tensor& grad, const Tensor& input, at::IntArrayRef shape, const Tensor& rstd,
                    const OptionalTensor& weight, std::array<bool, 2> mask) {
  const at::ScalarType type = SumType(input);
  const int64_t outer = input.dim() - static_cast<int64_t>(shape.size());
  std::vector<int64_t> inner_dims, outer_dims;
  for (int64_t i = 0; i < input.dim(); ++i) (i < outer ? outer_dims : inner_dims).push_back(i);
  const Tensor normal = input.to(type) * rstd, wide = grad.to(type), scaled = Has(weight) ? wide * *weight : wide;
  const Tensor of_input = (scaled - normal * (normal * scaled).mean(inner_dims, true)) * rstd;
  const Tensor product = wide * normal, of_weight = outer_dims.empty() ? product : product.sum(outer_dims);
  return {mask[0] ? of_input.to(input.scalar_type()) : Tensor(),
          mask[1] && Has(weight) ? of_weight.to(weight->scalar_type()) : Tensor()};
}

Tensor MmTo(const Tensor& a, const Tensor& b, at::ScalarType type) { return at::mm(a.to(type), b.to(type)); }
Tensor BmmTo(const Tensor& a, const Tensor& b, at::ScalarType type) { return at::bmm(a.to(type), b.to(type)); }
Tensor AddmmTo(const Tensor& c, const Tensor& a, const Tensor& b, at::ScalarType type, const at::Scalar& beta,
               const at::Scalar& alpha) {
  return at::addmm(c.to(type), a.to(type), b.to(type), beta, alpha);
}
Tensor BaddbmmTo(const Tensor& c, const Tensor& a, const Tensor& b, at::ScalarType type, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  return at::baddbmm(c.to(type), a.to(type), b.to(type), beta, alpha);
}

}  // namespace

void RegisterSubstitutes() {
  static torch::Library library(torch::Library::IMPL, "aten", kSubstitute, __FILE__, __LINE__);
  library.impl("batch_norm_stats", &BatchNormStats);
  library.impl("batch_norm_elemt", &BatchNormElement);
  library.impl("batch_norm_elemt.out", &BatchNormElementOut);
  library.impl("batch_norm_gather_stats", &BatchNormGather);
  library.impl("batch_norm_gather_stats_with_counts", &BatchNormGatherCounts);
  library.impl("batch_norm_backward_reduce", &BatchNormBackwardReduce);
  library.impl("batch_norm_backward_elemt", &BatchNormBackwardElement);
  library.impl("native_dropout", &NativeDropout);
  library.impl("_fused_dropout", &FusedDropout);
  library.impl("_masked_scale", &MaskedScale);
  library.impl("_thnn_fused_lstm_cell", &LstmCell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", &LstmCellBackward);
  library.impl("_thnn_fused_gru_cell", &GruCell);
  library.impl("_thnn_fused_gru_cell_backward", &GruCellBackward);
  library.impl("_softmax", &Softmax);
  library.impl("_log_softmax", &LogSoftmax);
  library.impl("_softmax_backward_data", &SoftmaxBackward);
  library.impl("_log_softmax_backward_data", &LogSoftmaxBackward);
  library.impl("_fused_rms_norm_backward", &RmsNormBackward);
  library.impl("mm.dtype", &MmTo);
  library.impl("bmm.dtype", &BmmTo);
  library.impl("addmm.dtype", &AddmmTo);
  library.impl("baddbmm.dtype", &BaddbmmTo);
  RegisterAttention(&library);
}

std::string RemedyFor(const std::string& name) {
  const auto contains = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (contains("attention")) {
    return "call torch.nn.functional.scaled_dot_product_attention and leave its backends flash, efficient and cuDNN "
           "off";
  }
  if (contains("cudnn") || contains("miopen")) return "leave torch.backends.cudnn.enabled False";
  if (contains("sparse_semi_structured") || contains("_cslt_")) return "keep the weights dense";
  if (contains("int4pack") || contains("mixed_dtypes")) return "convert the weights to a type of floating point";
  if (contains("conv_depthwise")) return "call torch.nn.functional.conv2d or conv3d";
  return "run this part on the CPU";
}

}  // namespace softgpu::aten
