// Channels and small gathers on them, for tests.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/timing.h"

namespace axccl::harness {

// Groups of lists of ranks of a communicator of `nranks`.
inline axcclGroups_t MakeGroups(int nranks, const std::vector<std::vector<int64_t>>& lists) {
  std::vector<int64_t> ids;
  std::vector<size_t> offsets{0};
  for (const auto& list : lists) {
    ids.insert(ids.end(), list.begin(), list.end());
    offsets.push_back(ids.size());
  }
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.num_partitions = nranks, spec.ids = ids.data(), spec.num_groups = lists.size(), spec.offsets = offsets.data();
  axcclGroups_t groups = nullptr;
  EXPECT_OK(axcclGroupsCreate(&groups, &spec));
  return groups;
}

// A channel of the rank's group in such lists; without lists, of all ranks.
inline axcclChannel_t MakeChannel(ncclComm_t comm, int nranks, const std::vector<std::vector<int64_t>>& lists,
                                  int64_t id) {
  axcclGroups_t groups = lists.empty() ? nullptr : MakeGroups(nranks, lists);
  axcclChannel_t channel = nullptr;
  EXPECT_OK(axcclChannelCreate(&channel, comm, groups, id, 0));
  if (groups != nullptr) {
    EXPECT_OK(axcclGroupsDestroy(groups));
  }
  return channel;
}

// One gather of `count` values, all equal to `value`, from each of a channel's ranks.
class Gather {
 public:
  Gather(int group_size, int64_t count, int64_t value)
      : count_(count), in_(static_cast<size_t>(count), value), out_(static_cast<size_t>(group_size * count), -1) {}

  ncclResult_t Enqueue(axcclChannel_t channel, axcclStream_t stream) {
    axcclView_t in = AXCCL_VIEW_INITIALIZER, out = AXCCL_VIEW_INITIALIZER;
    const int64_t in_size = count_, out_size = static_cast<int64_t>(out_.size());
    in.data = in_.data(), in.datatype = ncclInt64, in.num_dims = 1, in.sizes = &in_size;
    out.data = out_.data(), out.datatype = ncclInt64, out.num_dims = 1, out.sizes = &out_size;
    return axcclAllGather(1, &in, &out, 0, channel, nullptr, Cuda(stream));
  }
  // What arrived from every rank of the group, one value each; -2 if a rank's values are not all equal.
  std::vector<int64_t> Values() const {
    std::vector<int64_t> values;
    for (size_t i = 0; i < out_.size(); ++i) {
      if (i % static_cast<size_t>(count_) == 0) values.push_back(out_[i]);
      if (out_[i] != values.back()) values.back() = -2;
    }
    return values;
  }

 private:
  int64_t count_;
  DeviceVector<int64_t> in_, out_;
};

// Of GPU ranks, whose channels are limited: a destroyed channel makes room once the peers have released it, too.
inline void EnqueueWhenThereIsRoom(Gather* gather, axcclChannel_t channel, axcclStream_t stream) {
  ncclResult_t result = ncclInvalidUsage;
  for (const uint64_t start = NowNs(); result == ncclInvalidUsage && NowNs() - start < AllowedNs(2000);) {
    result = gather->Enqueue(channel, stream);
    harness::LookLater();
  }
  ASSERT_OK(result);
}

}  // namespace axccl::harness
