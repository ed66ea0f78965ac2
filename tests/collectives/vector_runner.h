// Acceptance vectors (tests/harness/vectors.h) through the API: the calls that they stand for, and the required
// results.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "tests/harness/client.h"
#include "tests/harness/guarded_buffer.h"
#include "tests/harness/vectors.h"

namespace axccl::tests {

using harness::Json;

// The reason why the API has no such call; empty if it has one.
std::string NotExpressible(const Json& test);

// Shape cases do not give elements: they get a grid and zeros everywhere. Tables of peers become a permutation.
Json WithData(const Json& test);
// The ranks of a case's communicator; 1 if it is about groups alone.
int RanksOf(const Json& test);

// The mode that StableHLO derives from channel_id and use_global_device_ids.
axcclGroupMode_t ModeOf(const std::string& op, const Json& attributes);
// Groups of a case's ids, under StableHLO's rules for its operation.
ncclResult_t CreateGroups(const std::string& op, const Json& attributes, axcclGroupMode_t mode, int64_t replicas,
                          int64_t partitions, axcclGroups_t* groups);
ncclDataType_t TypeOf(const Json& tensor);
// Makes the call of a case with data or of a negative case; the operands must exist.
ncclResult_t CallOp(const Json& test, const std::vector<axcclView_t>& in, const std::vector<axcclView_t>& out,
                    const std::vector<int32_t>& roots, axcclChannel_t channel, cudaStream_t stream);

// One rank's part in all cases of its number of ranks.
class VectorRunner {
 public:
  // `forced`: the algorithm that the call must have used if it has it; "" for any.
  VectorRunner(harness::RankContext& context, const harness::Clique& clique, const std::string& forced);

  // Failures are GoogleTest failures. `strided`: views in ncclMemAlloc memory with any strides, instead of dense ones
  // in other memory.
  void Run(const Json& test, bool strided);

 private:
  void RunData(const Json& test, bool strided);
  void RunSendRecv(const Json& test, bool strided);
  void RunProcessId(const Json& test);
  ncclResult_t CallRagged(const Json& test, int place, const std::vector<axcclView_t>& in,
                          const std::vector<axcclView_t>& out, axcclChannel_t channel);
  void CheckAlgorithm(const Json& test);
  cudaStream_t stream() const { return harness::Cuda(clique_.stream()); }

  harness::RankContext& context_;
  const harness::Clique& clique_;
  const std::string forced_;
  const int rank_;
  std::unique_ptr<harness::GuardedArena> arenas_[2];
  std::vector<int64_t> numbers_[4];  // for the ragged call
};

}  // namespace axccl::tests
