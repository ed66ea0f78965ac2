#include "src/exec/cuda/agree.h"

#include <vector>

#include "src/base/format.h"

namespace axccl::exec {
namespace {

struct Verdict {
  uint32_t code = 0;
  char text[380] = {};
};

struct Failure {
  size_t rank = 0;
  Status status;  // ok: none
};

Result<Failure> FindFailure(Gather* gather, size_t ranks, const Status& mine) {
  Verdict verdict;
  verdict.code = static_cast<uint32_t>(mine.code());
  mine.message().copy(verdict.text, sizeof(verdict.text) - 1);
  std::vector<Verdict> verdicts(ranks);
  AXCCL_RETURN_IF_ERROR(gather->AllGather(&verdict, sizeof(verdict), verdicts.data()));
  for (size_t rank = 0; rank < ranks; ++rank) {
    Verdict& other = verdicts[rank];
    if (other.code == 0) continue;
    other.text[sizeof(other.text) - 1] = 0;
    const bool known = other.code <= static_cast<uint32_t>(Code::kTimeout);
    return Failure{rank, Status(known ? static_cast<Code>(other.code) : Code::kRemoteError,
                                Printable(other.text[0] != 0 ? other.text : "unknown"))};
  }
  return Failure{};
}

}  // namespace

Result<std::string> FirstFailure(Gather* gather, size_t ranks, const Status& mine) {
  AXCCL_ASSIGN_OR_RETURN(const Failure failure, FindFailure(gather, ranks, mine));
  return std::string(failure.status.message());
}

Status Agree(Gather* gather, size_t ranks, const Status& mine) {
  AXCCL_ASSIGN_OR_RETURN(const Failure failure, FindFailure(gather, ranks, mine));
  return Prefixed(("rank " + std::to_string(failure.rank)).c_str(), failure.status);
}

}  // namespace axccl::exec
