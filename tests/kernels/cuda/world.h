// Ranks with a device each, on fibers: channels in simulated device memory, calls that run real plans on the
// interpreter kernel, and an oracle of the expected results.
//
// A world is one group of ranks with one channel. Calls are added in order, the same for all ranks (unless a test
// changes one), and then Run() runs every rank's launches as a stream. Data is small integers, so every order of
// reduction is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/algo/algo.h"
#include "src/exec/channel/channel.h"
#include "src/plan/plan.h"
#include "tests/harness/fibers/fibers.h"
#include "tests/harness/random.h"

namespace axccl::kernels::cuda {

// The kernel, compiled for fibers.
using Kernel = void (*)(const Launch& launch);

// The number of elements of a block that, on views, usually has two dimensions large enough to be copied by tiles.
inline constexpr uint64_t kTiledCount = 18 * 20;

struct CallSpec {
  plan::Kind kind = plan::Kind::kAllReduce;
  std::string_view algorithm;
  int lanes = 1;
  int root = 0;
  uint64_t count = 0;
  uint64_t tile = 0;  // elements, 0: all in one turn
  DataType type = DataType::kInt32;
  Combine combine = Combine::kSum;
  Scaling scaling = Scaling::kNone;
  uint32_t in_place = 0;  // a bit for each rank
  bool packs = false;     // slots are packed in words if they fit
  bool rows = false;      // and in rows, which need a multiple of 8 threads
  // On views: the elements of a block of each operand; `count` is their total in a block of the call. Never in place.
  std::vector<uint64_t> views;
  double scale = 0;  // of sums of floats on views
  // For direct algorithms: the algorithm that runs instead if a rank in `unmapped` (a bit for each) reports that not
  // all ranks reach its buffers. Empty: there is none.
  std::string_view staged;
  int staged_lanes = 1;
  uint32_t unmapped = 0;
  // The algorithm that runs instead of that in grown scratch, unless a rank in `cramped` reports that not all ranks
  // reach its grown scratch. Empty: there is none.
  std::string_view grown;
  int grown_lanes = 1;
  uint32_t cramped = 0;
  // A plan with slices, which is not on views and the only plan of its world: how it is cut; 0 slices: another plan.
  algo::Chunking chunks{.slices = 0};

  std::string Text() const;
};

// Stores a small integer as an element.
void StoreValue(DataType type, int64_t value, uint8_t* to);

class World {
 public:
  static constexpr int kMaxRanks = 8;

  World(int ranks, int lanes, uint64_t seed);

  int ranks() const { return ranks_; }
  const Wait& wait(int rank) const { return devices_[static_cast<size_t>(rank)]->wait; }
  Control& control(int rank) { return devices_[static_cast<size_t>(rank)]->control; }
  uint64_t* packed(int rank) {
    return reinterpret_cast<uint64_t*>(devices_[static_cast<size_t>(rank)]->channel->members()[rank].packed);
  }
  // As if the channel had run that many turns before; slots of rows were also used 2^32 turns before the next.
  void StartAt(uint64_t turn);
  const State& state(int rank) { return devices_[static_cast<size_t>(rank)]->channel->state; }

  // Adds the call to the streams of all ranks but those in `without`, a bit for each.
  void Add(const CallSpec& call, uint32_t without = 0);
  // Adds only one rank's part; the call may differ from those of other ranks.
  void AddFor(int rank, const CallSpec& call);

  // Before Run: hides the members from all ranks, as if those of a created channel had not met yet. Introducing a rank
  // reverses this for that rank.
  void HideMembers();
  void Introduce(int rank);

  struct Shape {
    uint32_t blocks = 1;  // of one launch
    uint32_t threads = 4;
    bool together = false;  // all ranks are tasks of one launch
    uint32_t more = 0;      // tasks are in memory, not in parameters
    bool in_graph = false;  // starts of plans with slices are
  };
  // For plans with slices, also while they run: declares an input chunk ready that was not; does nothing if all are.
  void DeclareOne();
  // Returns which chunk of an output has come and is wrong, or if `all`, has not come, or what is wrong with the stamps
  // of a start; empty if there is nothing.
  std::string CheckChunks(bool all) const;
  // Whether no word of the rank is 0.
  bool WordsAreSet(int rank) const;

  // Returns false if the streams do not end.
  bool Run(Kernel kernel, const Shape& shape, const fibers::Options& options);
  // Returns what is wrong with the results of all calls; empty if nothing is.
  std::string Check() const;

 private:
  struct Device {
    std::vector<uint64_t> lines, packed, rows, announcements, scratch, grown, bound, channel_memory;
    std::vector<uint64_t> maps, meeting_memory;
    Channel* channel = nullptr;
    Control control;
    Wait wait;
  };
  // One rank's part of a call.
  struct Part {
    CallSpec call;
    int rank;
    std::vector<uint64_t> memory;  // of input and output
    uint8_t* input = nullptr;
    uint8_t* output = nullptr;
    std::vector<uint8_t> wanted_input, wanted_output;
    std::vector<std::byte> program, staged, grown;
    std::vector<uint64_t> view_table;
    std::vector<uint32_t> in, out;          // words of chunks
    std::vector<uint32_t> seen, came;       // their stamps
    uint32_t begun[2] = {}, ended[2] = {};  // those of the start
    Sliced sliced;
    Task task;
    uint32_t stamp = 0;  // of Run
    std::string CheckStamps(bool all) const;
    std::string CheckChunk(size_t chunk, bool all) const;
  };

  void MakeDevice(int rank);
  void FillChannel(int rank);
  void MakeBuffers(Part* part);
  void MakeTask(Part* part);
  void OfferStaged(Part* part);
  void OfferGrown(Part* part);
  void MakeSliced(const exec::Program& program, Part* part);
  size_t NumRowed() const { return RowedEndpoints(static_cast<uint32_t>(ranks_)); }  // endpoints with slots of rows
  // world_views.cc
  struct Tensor;
  void MakeViews(Part* part);
  void MakeTensor(int blocks, const std::vector<int64_t>& sizes, Tensor* tensor);
  void PlaceTensors(ViewOperand* operands, std::vector<Tensor>* tensors, Part* part);
  void FillTensor(const Tensor& tensor, bool output, Part* part, std::vector<uint8_t>* image) const;
  int64_t InputValue(const CallSpec& call, int rank, int block, uint64_t i) const;
  int64_t WantedValue(const CallSpec& call, int rank, int block, uint64_t i) const;

  const int ranks_, lanes_;
  const uint64_t seed_;
  std::vector<std::byte> barrier_[kMaxRanks];
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::vector<std::unique_ptr<Part>>> parts_;  // by rank, in order
  harness::Random random_;
};

}  // namespace axccl::kernels::cuda
