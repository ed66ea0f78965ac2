#include "src/exec/cuda/agree.h"

#include <vector>

#include "src/base/format.h"

namespace axccl::exec {
namespace {

struct Verdict {
  uint32_t code = 0;
  char text[380] = {};
};

}  // namespace

Result<std::string> FirstFailure(Setup* setup, size_t ranks, const Status& mine) {
  Verdict verdict;
  verdict.code = static_cast<uint32_t>(mine.code());
  mine.message().copy(verdict.text, sizeof(verdict.text) - 1);
  std::vector<Verdict> verdicts(ranks);
  AXCCL_RETURN_IF_ERROR(setup->AllGather(&verdict, sizeof(verdict), verdicts.data()));
  for (Verdict& other : verdicts) {
    other.text[sizeof(other.text) - 1] = 0;
    if (other.code != 0) return Printable(other.text[0] != 0 ? other.text : "unknown");
  }
  return std::string();
}

}  // namespace axccl::exec
