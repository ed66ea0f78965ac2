// A collective without communication: it moves blocks between the arrays of all ranks of a group by the definition in
// contract.h, and finds the elements only with the views' blocks (src/tensor/view.h).
//
// Every rank's operands get random layouts, so that nothing depends on row-major storage. Elements are of any copyable
// type.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "src/tensor/view.h"
#include "tests/tensor/view_oracle.h"

namespace axccl::tensor {

using plan::Contract;
using plan::InputBlocks;
using plan::Kind;
using plan::OutputBlocks;

// A row-major tensor.
template <class T>
struct Tensor {
  Shape shape;
  std::vector<T> data;
};

// A view and the array it points into; addresses count from Address(0).
template <class T>
class Placed {
 public:
  Placed(harness::Random* random, const Shape& shape) : view_(RandomLayout(random, kElementSize, shape)) {
    const Extent extent = ByteExtent(view_);
    EXPECT_GE(Index(view_, extent.begin), 0u);
    elements_.resize(Index(view_, extent.end));
  }

  const View& view() const { return view_; }
  T& At(const View& view, int64_t offset) { return elements_.at(Index(view, offset)); }

  void Write(const Tensor<T>& tensor) {
    const std::vector<int64_t> offsets = Offsets(view_);
    ASSERT_EQ(offsets.size(), tensor.data.size());
    for (size_t i = 0; i < offsets.size(); ++i) At(view_, offsets[i]) = tensor.data[i];
  }
  Tensor<T> Read() {
    Tensor<T> tensor = {view_.shape, {}};
    for (int64_t offset : Offsets(view_)) tensor.data.push_back(At(view_, offset));
    return tensor;
  }

 private:
  static constexpr uint32_t kElementSize = 4;

  static size_t Index(const View& view, int64_t offset) {
    const uintptr_t from = reinterpret_cast<uintptr_t>(view.data) - reinterpret_cast<uintptr_t>(Address(0));
    return (from + static_cast<uintptr_t>(offset)) / kElementSize;
  }

  View view_;
  std::vector<T> elements_;
};

// What rank `rank` must receive into its block `block`: the source ranks and the number of the block that they send.
inline std::vector<int> Sources(const Contract& contract, int rank, int block, int* source_block) {
  *source_block =
      contract.kind == Kind::kReduceScatter || contract.kind == Kind::kAllToAll || contract.kind == Kind::kScatter
          ? rank
          : 0;
  switch (contract.kind) {
    case Kind::kAllGather:
    case Kind::kAllToAll:
    case Kind::kGather:
      return {block};
    case Kind::kBroadcast:
    case Kind::kScatter:
      return {contract.root};
    case Kind::kSendRecv:
      return {0};
    default:
      break;
  }
  std::vector<int> all;
  for (int r = 0; r < contract.ranks; ++r) all.push_back(r);
  return all;
}

// Returns the outputs by rank; for ranks without an output, an empty tensor of rank 0. `inputs` has the inputs of all
// ranks, including those that send nothing; they must have one shape.
template <class T>
std::vector<Tensor<T>> Simulate(const Collective& c, int root, const std::vector<Tensor<T>>& inputs,
                                const std::function<T(const T&, const T&)>& fold, harness::Random* random) {
  const Contract contract = {c.kind, c.group_size, root};
  const size_t n = static_cast<size_t>(c.group_size);
  std::vector<Tensor<T>> results(n);
  Shape out_shape;
  const Status status = OutputShape(c, inputs[0].shape, &out_shape);
  EXPECT_TRUE(status.ok()) << status.message();
  if (!status.ok()) return results;
  std::vector<Placed<T>> in, out;
  std::vector<Blocks> blocks(n);
  for (size_t r = 0; r < n; ++r) {
    const int rank = static_cast<int>(r);
    in.emplace_back(random, inputs[r].shape);
    in[r].Write(inputs[r]);
    out.emplace_back(random, out_shape);
    const View* input = InputBlocks(contract, rank) > 0 ? &in[r].view() : nullptr;
    const View* output = OutputBlocks(contract, rank) > 0 ? &out[r].view() : nullptr;
    const Status found = FindBlocks(c, input, output, &blocks[r]);
    EXPECT_TRUE(found.ok()) << found.message();
    if (!found.ok()) return results;
    EXPECT_EQ(blocks[r].input_blocks, InputBlocks(contract, rank));
    EXPECT_EQ(blocks[r].output_blocks, OutputBlocks(contract, rank));
    EXPECT_EQ(blocks[r].shape, blocks[0].shape) << "the ranks' blocks differ";
    EXPECT_EQ(blocks[r].elements, Elements(blocks[r].shape));
  }
  for (size_t r = 0; r < n; ++r) {
    for (int b = 0; b < blocks[r].output_blocks; ++b) {
      const View to = BlockView(out[r].view(), blocks[r].shape, blocks[r].output_stride, b);
      const std::vector<int64_t> to_offsets = Offsets(to);
      int source_block = 0;
      bool first = true;
      for (int s : Sources(contract, static_cast<int>(r), b, &source_block)) {
        const size_t source = static_cast<size_t>(s);
        const View from = BlockView(in[source].view(), blocks[source].shape, blocks[source].input_stride, source_block);
        const std::vector<int64_t> from_offsets = Offsets(from);
        for (size_t i = 0; i < to_offsets.size(); ++i) {
          T& target = out[r].At(to, to_offsets[i]);
          const T& value = in[source].At(from, from_offsets[i]);
          target = first ? value : fold(target, value);
        }
        first = false;
      }
    }
    if (blocks[r].output_blocks > 0) results[r] = out[r].Read();
  }
  return results;
}

}  // namespace axccl::tensor
