#include "src/api/permutation.h"

#include <span>
#include <utility>
#include <vector>

#include "src/base/hash.h"
#include "src/tensor/replica_groups.h"

namespace axccl::api {

Status FindNeighbours(const char* name, const int64_t* pairs, int num_pairs, const GroupPlace& place,
                      Neighbours* neighbours) {
  if (num_pairs < 0 || (num_pairs > 0 && pairs == nullptr))
    return MakeStatus(Code::kInvalidArgument, "%s: argument num_pairs is %d and pairs is %p; pass num_pairs pairs",
                      name, num_pairs, static_cast<const void*>(pairs));
  for (int i = 0; i < 2 * num_pairs; ++i) {
    if (pairs[i] < 0 || pairs[i] >= place.ranks)
      return MakeStatus(
          Code::kInvalidArgument,
          "%s: argument pairs: the %s of pair %d is %lld, out of range; pass ranks of the channel's group (0..%d) "
          "[StableHLO collective_permute (C4)]",
          name, i % 2 == 0 ? "source" : "target", i / 2, static_cast<long long>(pairs[i]), place.ranks - 1);
  }
  tensor::PairRequest request;
  request.call = name;
  request.grid = {1, place.ranks};
  request.pairs = tensor::IdLists::Rectangular(std::span(pairs, 2 * static_cast<size_t>(num_pairs)), 2);
  AXCCL_ASSIGN_OR_RETURN(const tensor::PermutePairs permutation, tensor::PermutePairs::Make(request));
  *neighbours = {permutation.TargetOf(place.rank), permutation.SourceOf(place.rank)};
  return Status();
}

Status FindPermuted(const ViewRequest& r, bool sends, exec::ViewList* list) {
  const plan::Contract both{plan::Kind::kAllReduce, 1, 0}, output_only{plan::Kind::kScatter, 2, 0};
  const ViewContext context{r, sends ? both : output_only, sends ? 0 : 1};
  std::vector<ViewPair> operands;
  AXCCL_RETURN_IF_ERROR(ReadOperands(context, &operands));
  for (int i = 0; i < r.count; ++i) {
    const ViewPair& operand = operands[static_cast<size_t>(i)];
    tensor::Blocks blocks;
    AXCCL_RETURN_IF_ERROR(CheckOperand(context, i, operand, &blocks));
    AXCCL_RETURN_IF_ERROR(CheckInPlace(context, i, operand, nullptr, nullptr));
    AXCCL_RETURN_IF_ERROR(ConvertBlocks(context, i, operand, blocks, &list->operands.emplace_back()));
  }
  return r.count > 1 ? CheckApart(context, operands) : Status();
}

uint64_t HashOfPairs(const int64_t* pairs, int num_pairs) {
  uint64_t sum = kHashSeed;
  for (int i = 0; i < num_pairs; ++i)
    sum += Mix(Mix(kHashSeed, static_cast<uint64_t>(pairs[2 * i])), static_cast<uint64_t>(pairs[2 * i + 1]));
  return sum | 1;
}

exec::ViewList OneSide(exec::ViewList list, bool inputs) {
  for (exec::ViewOperand& operand : list.operands) {
    if (inputs) {
      operand.output = nullptr;
    } else {
      operand.input = nullptr;
    }
  }
  return list;
}

}  // namespace axccl::api
