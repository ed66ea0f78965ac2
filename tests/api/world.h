// A small world in which any function of the library can be called: two ranks, each on its own host device and both
// driven by one thread, and one of every object that functions take, destroy or make.
//
// Needs no memory of its own from malloc. Not thread-safe.
#pragma once

#include <cstddef>

#include "axccl/axccl.h"
#include "nccl.h"

namespace axccl::test {

// One of each kind of object; null, or ncclNumOps, if there is none.
struct Objects {
  ncclComm_t comm = nullptr;  // a communicator of one rank
  axcclChannel_t channel = nullptr;
  axcclGroups_t groups = nullptr;
  axcclStream_t stream = nullptr;
  axcclEvent_t event = nullptr;
  void* memory = nullptr;
  void* registration = nullptr;
  ncclWindow_t window = nullptr;
  ncclRedOp_t op = ncclNumOps;
};

class World {
 public:
  static constexpr int kRanks = 2;
  static constexpr size_t kCount = 8;  // elements of a block: two rows of four

  World() = default;
  ~World() { Close(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Makes what is missing, and destroys what functions have made. Ends the process if that fails (Die).
  void Repair();
  // Ends everything, in any state.
  void Close();

  cudaStream_t Stream(int rank) const { return axcclStreamToCuda(streams[rank]); }
  // A rank's two buffers of two blocks each, and views of their first `blocks` blocks.
  int* In(int rank) const { return static_cast<int*>(memory) + 4 * kCount * static_cast<size_t>(rank); }
  int* Out(int rank) const { return In(rank) + 2 * kCount; }
  axcclView_t InView(int rank, int blocks) const { return ViewOf(In(rank), blocks); }
  axcclView_t OutView(int rank, int blocks) const { return ViewOf(Out(rank), blocks); }
  // Waits for the work of both ranks. Returns the first error.
  ncclResult_t Wait() const;

  // Arrays by rank.
  ncclComm_t comms[kRanks] = {};
  axcclStream_t streams[kRanks] = {};
  axcclChannel_t channels[kRanks] = {};
  axcclPipeline_t pipelines[kRanks] = {};  // made by functions
  void* memory = nullptr;
  Objects spare;      // to be queried, or destroyed
  bool worn = false;  // the spare communicator must be made anew
  Objects made;       // made by functions
  ncclComm_t also_made = nullptr;
  ncclUniqueId id{};  // the id of a future communicator

 private:
  static axcclView_t ViewOf(int* data, int blocks);
  void Open();
  void MakeSpare();
  void Destroy(Objects* objects);
};

ncclResult_t MakeGroups(axcclGroups_t* groups);
void AddInts(void* accumulator, const void* operand, size_t count, void* context);

}  // namespace axccl::test
