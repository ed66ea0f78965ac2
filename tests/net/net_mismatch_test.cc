// Ranks on several hosts that make different calls: as on one host (comm/mismatch_matrix_test.cc), every rank gets a
// text that names both calls. Here the call in which a rank waits must be sent to the other hosts.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/timing.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::RankContext;
using harness::TestHosts;

struct Pair {
  const char* names[2];  // the calls of rank 0 and of the others
  ncclResult_t (*calls[2])(ncclComm_t comm, axcclStream_t stream, int rank);
};

float data[2][64];
constexpr int64_t kFour[1] = {4}, kThere[2] = {0, 1}, kBack[2] = {1, 0};

axcclView_t View(const void* at) {
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.data = const_cast<void*>(at), view.num_dims = 1, view.sizes = kFour;
  return view;
}

ncclResult_t AllReduce(ncclComm_t comm, axcclStream_t stream, int) {
  return ncclAllReduce(data[0], data[1], 4, ncclFloat32, ncclSum, comm, Cuda(stream));
}
ncclResult_t AllGather(ncclComm_t comm, axcclStream_t stream, int) {
  return ncclAllGather(data[0], data[1], 4, ncclFloat32, comm, Cuda(stream));
}
ncclResult_t Send(ncclComm_t comm, axcclStream_t stream, int rank) {
  return ncclSend(data[0], 4, ncclFloat32, rank == 0 ? 1 : 0, comm, Cuda(stream));
}
ncclResult_t Recv(ncclComm_t comm, axcclStream_t stream, int rank) {
  return ncclRecv(data[0], 4, ncclFloat32, rank == 0 ? 1 : 0, comm, Cuda(stream));
}
ncclResult_t RecvInts(ncclComm_t comm, axcclStream_t stream, int rank) {
  return ncclRecv(data[0], 4, ncclInt32, rank == 0 ? 1 : 0, comm, Cuda(stream));
}
template <const int64_t* kPairs>
ncclResult_t Permute(ncclComm_t comm, axcclStream_t stream, int) {
  const axcclView_t in = View(data[0]), out = View(data[1]);
  return axcclCollectivePermute(1, &in, &out, kPairs, 1, axcclDefaultChannel(comm), nullptr, Cuda(stream));
}

const Pair kPairs[] = {
    {{"ncclAllReduce", "ncclAllGather"}, {AllReduce, AllGather}},
    {{"ncclSend", "ncclAllReduce"}, {Send, AllReduce}},
    {{"ncclAllReduce", "ncclRecv"}, {AllReduce, Recv}},
    {{"ncclSend", "ncclRecv"}, {Send, RecvInts}},
    {{"ncclSend", "ncclSend"}, {Send, Send}},
    {{"axcclCollectivePermute", "ncclAllReduce"}, {Permute<kThere>, AllReduce}},
    {{"axcclCollectivePermute", "axcclCollectivePermute"}, {Permute<kThere>, Permute<kBack>}},
};

void RunPairs(RankContext& context) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context, std::size(kPairs)));
  std::vector<ncclComm_t> comms(std::size(kPairs));
  for (ncclComm_t& comm : comms) ASSERT_OK(ncclCommSplit(clique.comm(), 0, context.rank(), &comm, nullptr));
  ASSERT_TRUE(context.Barrier());
  const uint64_t start = harness::NowNs();
  for (size_t i = 0; i < comms.size(); ++i) {
    const ncclResult_t called =
        kPairs[i].calls[context.rank() == 0 ? 0 : 1](comms[i], clique.stream(0, static_cast<int>(i)), context.rank());
    EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage) << ncclGetLastError(nullptr);
  }
  for (size_t i = 0; i < comms.size(); ++i) {
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && harness::NowNs() - start < harness::AllowedNs(1000))
      ASSERT_OK(ncclCommGetAsyncError(comms[i], &state));
    const std::string text = ncclGetLastError(nullptr);
    EXPECT_EQ(state, ncclInvalidUsage) << kPairs[i].names[0] << " and " << kPairs[i].names[1] << ": " << text;
    for (const char* name : kPairs[i].names)
      EXPECT_NE(text.find(name + std::string(" ")), std::string::npos) << name << " is not in: " << text;
  }
  ASSERT_TRUE(context.Barrier());
  for (ncclComm_t comm : comms) EXPECT_OK(ncclCommAbort(comm));
}

TEST(NetMismatch, OfTwoHostsNamesBothCalls) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) { RunPairs(context); });
}

}  // namespace
}  // namespace axccl::tests
