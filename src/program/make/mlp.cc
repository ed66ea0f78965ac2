#include <string>
#include <vector>

#include "src/program/kinds.h"
#include "src/program/make.h"
#include "src/program/make/sizes.h"
#include "src/program/make/step.h"

namespace axccl::program {

Result<Program> MakeMlp(const MlpShape& shape) {
  AXCCL_RETURN_IF_ERROR(
      CheckSizes("mlp", shape.type, {{"layers", shape.layers}, {"dim", shape.dim}, {"batch", shape.batch}}));
  TrainingStep step(shape.type);
  Builder& b = step.builder();
  std::vector<Id> weights, inputs;
  for (int64_t i = 0; i < shape.layers; ++i) weights.push_back(step.Weight({shape.dim, shape.dim}));
  inputs.push_back(step.Batch({shape.batch, shape.dim}));
  const Id labels = step.Batch({shape.batch, shape.dim});
  for (const Id weight : weights) {
    const Id product = b.Dot(inputs.back(), weight, {1}, {0});
    inputs.push_back(weight == weights.back() ? product : step.Positive(product));
  }
  Id gradient = step.Loss(inputs.back(), labels);
  for (size_t i = weights.size(); i-- > 0;) {
    if (i + 1 < weights.size()) gradient = step.PositiveGradient(inputs[i + 1], gradient);
    step.SetGradient(weights[i], b.Dot(inputs[i], gradient, {0}, {0}));
    if (i > 0) gradient = b.Dot(gradient, weights[i], {1}, {1});
  }
  return step.Finish();
}

}  // namespace axccl::program
