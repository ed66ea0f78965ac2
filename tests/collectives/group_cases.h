// Random replica groups by definition: a caller's arguments, and the ranks that must result.
//
// Written from StableHLO's specification ("Process groups") and Shardy's of meshes and sub-axes, without any of the
// library's code. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "tests/harness/random.h"

namespace axccl::tests {

struct GroupCase {
  // Lists of ids.
  axcclGroupMode_t mode = axcclFlattenedIds;
  int64_t replicas = 1, partitions = 1;
  std::vector<std::vector<int64_t>> lists;
  bool padded = false;  // padded with -1 to equal lengths, instead of offsets
  // Or a mesh, if it has axes.
  std::vector<int64_t> axis_sizes, devices;
  struct Ref {
    int axis;
    int64_t pre_size, size;  // size 0: the whole axis
  };
  std::vector<Ref> refs;

  std::vector<std::vector<int>> groups;  // the ranks

  // The handle that the library creates for it.
  ncclResult_t Create(axcclGroups_t* groups) const;
  std::string Text() const;
};

GroupCase AnyGroupCase(harness::Random* random, int nranks);

}  // namespace axccl::tests
