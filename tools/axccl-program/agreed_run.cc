#include "tools/axccl-program/agreed_run.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace axccl::tools {
namespace {

// A text names a rank, an operation or file, and an element. Longer ones are cut.
constexpr size_t kMostText = 8192;

// What a rank says of its first operation that differs.
enum OperationNumber : size_t { kTextBytes, kPart, kIndex, kOrder, kNumbers };

}  // namespace

AgreedRun::AgreedRun(std::unique_ptr<RankRun> run, Comparison* comparison, int ranks, int rank, ncclComm_t comm,
                     axcclStream_t stream)
    : run_(std::move(run)), comparison_(*comparison), ranks_(ranks), rank_(rank), comm_(comm), stream_(stream) {}

Result<RankResult> AgreedRun::Run() {
  AXCCL_ASSIGN_OR_RETURN(RankResult result, run_->Run());
  const std::string call = "rank " + std::to_string(rank_);
  AXCCL_ASSIGN_OR_RETURN(result.verdict, CatchAll(call.c_str(), [&] { return FindVerdict(result.outputs); }));
  return result;
}

Result<std::string> AgreedRun::FindVerdict(const program::Tensors& outputs) {
  std::string output = OutputDifference(rank_, outputs, comparison_.expected, comparison_.tolerance);
  if (!output.empty()) output = "differs from " + comparison_.against + " in " + output;
  output.resize(std::min(output.size(), kMostText));
  AXCCL_ASSIGN_OR_RETURN(const std::vector<uint64_t> sizes, GatherNumbers({output.size()}));
  const auto differs = std::find_if(sizes.begin(), sizes.end(), [](uint64_t size) { return size > 0; });
  if (differs == sizes.end()) return std::string();
  AXCCL_ASSIGN_OR_RETURN(std::string verdict, TextOf(static_cast<size_t>(differs - sizes.begin()), output, *differs));
  AXCCL_RETURN_IF_ERROR(comparison_.watch.Begin(rank_, comparison_.here));
  AXCCL_RETURN_IF_ERROR(run_->RunOnceMore());
  const std::optional<DifferentOperation>& own = comparison_.watch.Of(rank_);
  std::string operation = own.has_value() ? own->text : "";
  operation.resize(std::min(operation.size(), kMostText));
  std::vector<uint64_t> numbers(kNumbers);
  if (own.has_value()) numbers = {operation.size(), own->place.part, own->place.index, own->place.order};
  AXCCL_ASSIGN_OR_RETURN(numbers, GatherNumbers(numbers));
  std::vector<std::optional<Place>> places(static_cast<size_t>(ranks_));
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const uint64_t* const of_rank = &numbers[rank * kNumbers];
    if (of_rank[kTextBytes] > 0) places[rank] = {of_rank[kPart], of_rank[kIndex], of_rank[kOrder]};
  }
  const std::optional<size_t> first = FirstOf(places);
  if (!first.has_value()) return verdict;
  AXCCL_ASSIGN_OR_RETURN(operation, TextOf(*first, operation, numbers[*first * kNumbers + kTextBytes]));
  return verdict + "\nthe first operation that differs from the reference: " + operation;
}

// Those of all ranks, one behind the other.
Result<std::vector<uint64_t>> AgreedRun::GatherNumbers(const std::vector<uint64_t>& own) {
  std::vector<uint64_t> all(own.size() * static_cast<size_t>(ranks_));
  AXCCL_RETURN_IF_ERROR(
      Check(ncclAllGather(own.data(), all.data(), own.size(), ncclUint64, comm_, axcclStreamToCuda(stream_))));
  return all;
}

// What that rank says, whose size all have learnt from it.
Result<std::string> AgreedRun::TextOf(size_t rank, const std::string& own, uint64_t bytes) {
  if (bytes > kMostText)
    return MakeStatus(Code::kRemoteError, "rank %d: rank %zu has sent a text of %llu bytes; at most %zu can be", rank_,
                      rank, static_cast<unsigned long long>(bytes), kMostText);
  std::string text(bytes, ' ');
  AXCCL_RETURN_IF_ERROR(Check(ncclBroadcast(own.data(), text.data(), bytes, ncclUint8, static_cast<int>(rank), comm_,
                                            axcclStreamToCuda(stream_))));
  return text;
}

Status AgreedRun::Check(ncclResult_t result) {
  if (result == ncclSuccess && axcclStreamSynchronize(stream_) == ncclSuccess) return Status();
  return MakeStatus(Code::kRemoteError, "rank %d while ranks compared their results: %s", rank_,
                    ncclGetLastError(comm_));
}

}  // namespace axccl::tools
