// Comparing what a program gave where its ranks are processes of a job: all of them come to one verdict.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/program/reference.h"
#include "tools/axccl-program/compare.h"
#include "tools/axccl-program/rank_run.h"

namespace axccl::tools {

// What the ranks here compare with. Shared by them.
struct Comparison {
  Comparison(const program::Program* program, const std::vector<program::Tensors>* inputs, double tolerance_)
      : tolerance(tolerance_), watch(program, inputs, tolerance_) {}

  RankRange here;
  std::string against;                     // "reference", or the name of a file
  std::vector<program::Tensors> expected;  // outputs, by rank
  const double tolerance;
  Watch watch;  // its observer must be that of the run
};

// A run of a rank, and then a comparison in which all ranks of the communicator take part. If the outputs of any rank
// differ, all run the program once more, watched. The verdict of all their results is then the same text.
class AgreedRun : public RankTask {
 public:
  // The comparison, the communicator and the stream must outlive it.
  AgreedRun(std::unique_ptr<RankRun> run, Comparison* comparison, int ranks, int rank, ncclComm_t comm,
            axcclStream_t stream);
  Result<RankResult> Run() override;

 private:
  Result<std::string> FindVerdict(const program::Tensors& outputs);
  Result<std::vector<uint64_t>> GatherNumbers(const std::vector<uint64_t>& own);
  Result<std::string> TextOf(size_t rank, const std::string& own, uint64_t bytes);
  Status Check(ncclResult_t result);

  const std::unique_ptr<RankRun> run_;
  Comparison& comparison_;
  const int ranks_, rank_;
  const ncclComm_t comm_;
  const axcclStream_t stream_;
};

}  // namespace axccl::tools
