// What training steps have in common: the loss and its gradient, and the update of the weights.
#pragma once

#include <vector>

#include "src/program/builder.h"
#include "src/program/program.h"

namespace axccl::program {

class TrainingStep {
 public:
  explicit TrainingStep(DataType type) : type_(type), builder_("main") {}

  Builder& builder() { return builder_; }
  DataType type() const { return type_; }
  bool is_float() const { return IsFloat(type_); }

  // All weights come before the batch.
  Id Weight(const Ints& dims);
  Id Batch(const Ints& dims) { return builder_.Argument({type_, dims}); }
  // Returns the gradient with respect to the prediction.
  Id Loss(Id prediction, Id labels);
  void SetGradient(Id weight, Id gradient);
  // max(x, 0), and the gradient with respect to x, from that with respect to the result.
  Id Positive(Id x);
  Id PositiveGradient(Id result, Id gradient);
  Id Scaled(Id value, double factor);
  Id Sum(Id a, Id b) { return builder_.Elementwise(OpKind::kAdd, {a, b}); }
  Id Product(Id a, Id b) { return builder_.Elementwise(OpKind::kMultiply, {a, b}); }
  // Updates the weights. One rank.
  Program Finish();

 private:
  const DataType type_;
  Builder builder_;
  std::vector<Id> weights_, gradients_;
  Id loss_ = 0;
};

}  // namespace axccl::program
