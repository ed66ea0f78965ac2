#include <cmath>
#include <vector>

#include "src/program/make.h"
#include "src/program/make/sizes.h"
#include "src/program/make/step.h"

namespace axccl::program {
namespace {

constexpr double kEpsilon = 1e-5;

// Values of the forward pass that the gradients need. Letters are sizes: batch B, sequence S and T, dim D, heads H, of
// E columns each, inner layer F.
struct Normalized {
  Id input, result;
  Id factor;  // 1 over the root mean square, [B,S]; floats only
};
struct Block {
  Id query, key, value, output, up, down;  // weights: [D,H,E] three times, [H,E,D], [D,F], [F,D]
  Normalized first, second;
  Id q, k, v;        // [B,S,H,E]
  Id probabilities;  // [B,H,S,T]
  Id heads;          // [B,H,S,E]
  Id inner;          // [B,S,F]
};

class Transformer {
 public:
  explicit Transformer(const TransformerShape& shape) : shape_(shape), step_(shape.type), b_(step_.builder()) {}

  Program Make() {
    blocks_.resize(static_cast<size_t>(shape_.layers));
    for (Block& block : blocks_) AddWeights(&block);
    const Ints batch{shape_.batch, shape_.sequence, shape_.dim};
    Id x = step_.Batch(batch);
    const Id labels = step_.Batch(batch);
    for (Block& block : blocks_) x = Layers(&block, Attention(&block, x));
    Id gradient = step_.Loss(x, labels);
    for (size_t i = blocks_.size(); i-- > 0;) {
      gradient = LayersGradient(blocks_[i], gradient);
      gradient = AttentionGradient(blocks_[i], gradient, i > 0);
    }
    return step_.Finish();
  }

 private:
  void AddWeights(Block* block) {
    const int64_t d = shape_.dim, h = shape_.heads, e = d / h;
    block->query = step_.Weight({d, h, e});
    block->key = step_.Weight({d, h, e});
    block->value = step_.Weight({d, h, e});
    block->output = step_.Weight({h, e, d});
    block->up = step_.Weight({d, 4 * d});
    block->down = step_.Weight({4 * d, d});
  }

  Id Attention(Block* block, Id x) {
    block->first = Normalize(x);
    const Id n = block->first.result;
    block->q = b_.Dot(n, block->query, {2}, {0});
    block->k = b_.Dot(n, block->key, {2}, {0});
    block->v = b_.Dot(n, block->value, {2}, {0});
    block->probabilities = Probabilities(b_.Dot(block->q, block->k, {3}, {3}, {0, 2}, {0, 2}));
    block->heads = b_.Dot(block->probabilities, block->v, {3}, {1}, {0, 1}, {0, 2});
    return step_.Sum(x, b_.Dot(block->heads, block->output, {1, 3}, {0, 1}));
  }

  Id Layers(Block* block, Id x) {
    block->second = Normalize(x);
    block->inner = step_.Positive(b_.Dot(block->second.result, block->up, {2}, {0}));
    return step_.Sum(x, b_.Dot(block->inner, block->down, {2}, {0}));
  }

  Id LayersGradient(const Block& block, Id gradient) {
    step_.SetGradient(block.down, b_.Dot(block.inner, gradient, {0, 1}, {0, 1}));
    const Id inner = step_.PositiveGradient(block.inner, b_.Dot(gradient, block.down, {2}, {1}));
    step_.SetGradient(block.up, b_.Dot(block.second.result, inner, {0, 1}, {0, 1}));
    return step_.Sum(gradient, NormalizeGradient(block.second, b_.Dot(inner, block.up, {2}, {1})));
  }

  Id AttentionGradient(const Block& block, Id gradient, bool of_input) {
    step_.SetGradient(block.output, b_.Dot(block.heads, gradient, {0, 2}, {0, 1}));
    const Id heads = b_.Dot(gradient, block.output, {2}, {2});                  // [B,S,H,E]
    const Id v = b_.Dot(block.probabilities, heads, {2}, {1}, {0, 1}, {0, 2});  // [B,H,T,E]
    const Id p = b_.Dot(heads, block.v, {3}, {3}, {0, 2}, {0, 2});              // [B,H,S,T]
    const Id scores = ProbabilitiesGradient(block.probabilities, p);
    const Id q = b_.Dot(scores, block.k, {3}, {1}, {0, 1}, {0, 2});  // [B,H,S,E]
    const Id k = b_.Dot(scores, block.q, {2}, {1}, {0, 1}, {0, 2});  // [B,H,T,E]
    const Id n = block.first.result;
    step_.SetGradient(block.query, b_.Dot(n, q, {0, 1}, {0, 2}));
    step_.SetGradient(block.key, b_.Dot(n, k, {0, 1}, {0, 2}));
    step_.SetGradient(block.value, b_.Dot(n, v, {0, 1}, {0, 2}));
    if (!of_input) return gradient;
    const Id through_q = b_.Dot(q, block.query, {1, 3}, {1, 2});
    const Id through_k = b_.Dot(k, block.key, {1, 3}, {1, 2});
    const Id through_v = b_.Dot(v, block.value, {1, 3}, {1, 2});
    const Id input = step_.Sum(step_.Sum(through_q, through_k), through_v);
    return step_.Sum(gradient, NormalizeGradient(block.first, input));
  }

  // [B,S,D] from [B,S].
  Id ToColumns(Id value) { return b_.Broadcast(value, {shape_.batch, shape_.sequence, shape_.dim}, {0, 1}); }

  // x / sqrt(mean(x^2) + epsilon), over the last dimension.
  Normalized Normalize(Id x) {
    if (!step_.is_float()) return {x, x, x};
    const Id mean = step_.Scaled(b_.Reduce(Combine::kSum, step_.Product(x, x), {2}), 1.0 / double(shape_.dim));
    const Id factor = b_.Elementwise(OpKind::kRsqrt, {step_.Sum(mean, b_.Constant(b_.TypeOf(mean), kEpsilon))});
    return {x, step_.Product(x, ToColumns(factor)), factor};
  }

  // r g - x r^3 mean(x g), where r is the factor.
  Id NormalizeGradient(const Normalized& n, Id gradient) {
    if (!step_.is_float()) return gradient;
    const Id mean =
        step_.Scaled(b_.Reduce(Combine::kSum, step_.Product(n.input, gradient), {2}), 1.0 / double(shape_.dim));
    const Id cube = step_.Product(step_.Product(n.factor, n.factor), n.factor);
    const Id along = step_.Product(n.input, ToColumns(step_.Product(cube, mean)));
    return b_.Elementwise(OpKind::kSubtract, {step_.Product(gradient, ToColumns(n.factor)), along});
  }

  // [B,H,S,T] from [B,H,S].
  Id ToScores(Id value) {
    return b_.Broadcast(value, {shape_.batch, shape_.heads, shape_.sequence, shape_.sequence}, {0, 1, 2});
  }

  double ScoreScale() const { return 1 / std::sqrt(double(shape_.dim) / double(shape_.heads)); }

  Id Probabilities(Id scores) {
    if (!step_.is_float()) return step_.Positive(scores);
    scores = step_.Scaled(scores, ScoreScale());
    const Id largest = ToScores(b_.Reduce(Combine::kMax, scores, {3}));
    const Id powers = b_.Elementwise(OpKind::kExponential, {b_.Elementwise(OpKind::kSubtract, {scores, largest})});
    return b_.Elementwise(OpKind::kDivide, {powers, ToScores(b_.Reduce(Combine::kSum, powers, {3}))});
  }

  // p (g - sum(p g)), times the scale.
  Id ProbabilitiesGradient(Id probabilities, Id gradient) {
    if (!step_.is_float()) return step_.PositiveGradient(probabilities, gradient);
    const Id sum = b_.Reduce(Combine::kSum, step_.Product(probabilities, gradient), {3});
    const Id rest = b_.Elementwise(OpKind::kSubtract, {gradient, ToScores(sum)});
    return step_.Scaled(step_.Product(probabilities, rest), ScoreScale());
  }

  const TransformerShape& shape_;
  TrainingStep step_;
  Builder& b_;
  std::vector<Block> blocks_;
};

}  // namespace

Result<Program> MakeTransformer(const TransformerShape& shape) {
  AXCCL_RETURN_IF_ERROR(CheckSizes("transformer", shape.type,
                                   {{"layers", shape.layers},
                                    {"dim", shape.dim},
                                    {"heads", shape.heads},
                                    {"sequence", shape.sequence},
                                    {"batch", shape.batch}}));
  if (shape.dim % shape.heads != 0) {
    return MakeStatus(Code::kInvalidArgument, "make transformer: dim is %lld, must be a multiple of the heads, %lld",
                      static_cast<long long>(shape.dim), static_cast<long long>(shape.heads));
  }
  return Transformer(shape).Make();
}

}  // namespace axccl::program
