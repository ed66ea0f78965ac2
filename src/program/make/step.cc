#include "src/program/make/step.h"

#include <algorithm>
#include <utility>

namespace axccl::program {
namespace {

constexpr double kRate = 0.01;

}  // namespace

Id TrainingStep::Weight(const Ints& dims) {
  weights_.push_back(builder_.Argument({type_, dims}, true));
  gradients_.push_back(weights_.back());
  return weights_.back();
}

Id TrainingStep::Loss(Id prediction, Id labels) {
  const TensorType type = builder_.TypeOf(prediction);
  const double scale = is_float() ? 1.0 / static_cast<double>(Elements(type)) : 1;
  const Id difference = builder_.Elementwise(OpKind::kSubtract, {prediction, labels});
  Ints all;
  for (size_t d = 0; d < type.dims.size(); ++d) all.push_back(static_cast<int64_t>(d));
  loss_ = builder_.Reduce(Combine::kSum, Product(difference, difference), all);
  if (is_float()) loss_ = Scaled(loss_, scale);
  return Scaled(difference, 2 * scale);
}

void TrainingStep::SetGradient(Id weight, Id gradient) {
  gradients_[static_cast<size_t>(std::find(weights_.begin(), weights_.end(), weight) - weights_.begin())] = gradient;
}

Id TrainingStep::Positive(Id x) {
  const Id zero = builder_.Constant(builder_.TypeOf(x), 0);
  return builder_.Elementwise(OpKind::kMaximum, {x, zero});
}

Id TrainingStep::PositiveGradient(Id result, Id gradient) {
  const Id zero = builder_.Constant(builder_.TypeOf(gradient), 0);
  return builder_.Elementwise(OpKind::kSelect, {builder_.Greater(result, zero), gradient, zero});
}

Id TrainingStep::Scaled(Id value, double factor) {
  return Product(value, builder_.Constant(builder_.TypeOf(value), factor));
}

Program TrainingStep::Finish() {
  std::vector<Id> results;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const Id change = is_float() ? Scaled(gradients_[i], kRate) : gradients_[i];
    results.push_back(builder_.Elementwise(OpKind::kSubtract, {weights_[i], change}));
  }
  results.push_back(loss_);
  Program program;
  program.parts.push_back({{0}, builder_.Finish(std::move(results))});
  return program;
}

}  // namespace axccl::program
