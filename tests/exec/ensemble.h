// Ranks without a communicator: channels over simulated processes, all driven by the thread of the test.
//
// An Ensemble has the channels of `ranks` ranks that share one group. Each rank is a simulated process of its own, or
// all are one. The ensemble gives the channels what the communicator would. Step() lets one rank's operation make one
// step while only that rank's private memory is accessible. Not thread-safe, except that each rank of Layout::kThreads
// may be stepped by its own thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/exec/channel/channel.h"
#include "src/exec/host/channel.h"
#include "src/exec/host/operation.h"
#include "tests/exec/memory.h"
#include "tests/exec/post.h"

namespace axccl::exec {

// How ranks may access each other's memory.
enum class Layout : uint8_t {
  kThreads,  // one process
  kHeap,     // processes, all buffers in heaps
  kCall,     // processes, buffers private, reached by call
  kNothing,  // processes, buffers private, no calls
  kMixed,    // processes, buffers private or in heaps at random, calls allowed
  kRemote,   // processes on several machines, buffers private, no calls
};
inline constexpr Layout kLayouts[] = {Layout::kThreads, Layout::kHeap,  Layout::kCall,
                                      Layout::kNothing, Layout::kMixed, Layout::kRemote};
const char* LayoutName(Layout layout);

struct EnsembleOptions {
  int ranks = 2;
  Layout layout = Layout::kThreads;
  std::string algorithms;                       // NCCL_ALGO's grammar
  std::vector<std::string> algorithms_of = {};  // for each rank, if they differ
  int lanes = 1;                                // 2: two lanes wherever the chooser sees any gain
  uint64_t scratch_bytes = 8192;                // small, so that few elements make several turns
  size_t process_bytes = 16u << 20;
  double timeout_seconds = 0;
  // Layout::kRemote: the machine of each rank. Empty: two machines, alternating.
  std::vector<int> machine_of = {};
  PlanOptions plans = {};
  std::optional<cost::Machine> machine;  // what the chooser assumes; cores and ranks are filled in
};

class Ensemble;

// Stands in for a rank's communicator.
class FakeOwner : public ChannelOwner {
 public:
  FakeOwner(Ensemble* ensemble, int rank) : ensemble_(ensemble), rank_(rank) {}

  bool failed() const override { return failed_.load(std::memory_order_acquire); }
  Status Failure() const override;
  void Fail(const Status& status) override;
  Result<std::shared_ptr<const Program>> GetProgram(const plan::Contract& contract, std::string_view algorithm,
                                                    int lanes, int rank, const plan::Placement& placement) override;
  const tune::Chooser& chooser() const override;
  bool InHeap(const void* p, size_t bytes, uint64_t* offset) const override;
  Status TakeBack(const void*, size_t) override { return Status(); }
  bool TakenBack(const void*, size_t) const override { return false; }
  Result<std::byte*> TakeShared(uint64_t bytes, uint64_t* offset) override;
  uint64_t cache_bytes() const override { return cache_bytes_; }
  Deadline deadline() const override;
  double notice_seconds() const override { return 0; }

  void set_cache_bytes(uint64_t bytes) { cache_bytes_ = bytes; }
  // The next request for a program returns this one, whatever it asks for.
  void GiveNext(std::shared_ptr<const Program> program) { next_ = std::move(program); }
  // `function` runs when this rank is about to read by system call.
  void BeforeReads(std::function<void()> function) { before_reads_ = std::move(function); }
  // Bytes that calls of this rank have moved.
  uint64_t bytes_read() const { return bytes_read_; }
  // Reads by system call from another process.
  Status Read(FakeProcess* process, void* to, uint64_t from, size_t bytes);

 private:
  Ensemble* const ensemble_;
  const int rank_;
  std::atomic<bool> failed_{false};
  Status failure_;
  uint64_t cache_bytes_ = 1u << 30;
  uint64_t bytes_read_ = 0;
  std::function<void()> before_reads_;
  std::shared_ptr<const Program> next_;
};

// How a rank reaches another rank on its machine.
class FakeReach : public transport::Reach {
 public:
  FakeReach(FakeOwner* viewer, FakeProcess* process, FakePeer* view, std::byte* block)
      : Reach(view, block), viewer_(viewer), process_(process) {}

  const char* Name() const override { return "fake"; }
  bool TryCalls(uint64_t, uint64_t) override { return calls(); }
  Status Read(void* to, uint64_t from, size_t bytes) override { return viewer_->Read(process_, to, from, bytes); }

 private:
  FakeOwner* const viewer_;
  FakeProcess* const process_;
};

class Ensemble final : public StateMaker {
 public:
  explicit Ensemble(const EnsembleOptions& options);

  int ranks() const { return options_.ranks; }
  const EnsembleOptions& options() const { return options_; }
  const BlockLayout& layout() const { return layout_; }
  FakeOwner* owner(int rank) { return owners_[static_cast<size_t>(rank)].get(); }
  Channel* channel(int rank) { return channels_[static_cast<size_t>(rank)].get(); }
  HostChannel* host(int rank) { return HostChannel::Of(*channel(rank)); }
  BlockHeader* header(int rank) { return reinterpret_cast<BlockHeader*>(Block(rank)); }
  FakeProcess& process(int rank);
  const tune::Chooser& chooser(int rank) const {
    return *choosers_[choosers_.size() == 1 ? 0 : static_cast<size_t>(rank)];
  }

  // For the channels here and any that a test makes.
  std::unique_ptr<ChannelState> MakeState(const Members& members) override {
    return std::make_unique<HostChannel>(members, options_.plans);
  }
  // Members as `viewer` sees them, for channels of another layout.
  Member MakeMember(int viewer, int rank);
  // Memory of `rank` for a buffer, of the kind that its layout prescribes (`heap` chooses where both kinds are mixed),
  // and the view of it that is always accessible.
  std::byte* Allocate(int rank, size_t bytes, size_t alignment, bool heap);
  std::byte* AlwaysAccessible(int rank, std::byte* p);

  device::host::Poll Step(int rank, Operation* operation);
  // Changes whenever a rank signals. Not while an operation is being stepped.
  uint64_t Signals() const;
  // For Layout::kRemote.
  Post& post() { return post_; }

 private:
  friend class FakeOwner;
  int MachineOf(int rank) const;
  bool one_process() const { return options_.layout == Layout::kThreads; }
  std::byte* Block(int rank) { return blocks_[static_cast<size_t>(rank)]; }

  const EnsembleOptions options_;
  const BlockLayout layout_;
  Post post_;
  std::vector<std::unique_ptr<tune::Chooser>> choosers_;  // one for all, or one each
  std::vector<std::unique_ptr<FakeProcess>> processes_;
  std::vector<std::byte*> blocks_;  // in the owner's view
  std::vector<std::unique_ptr<FakeOwner>> owners_;
  std::vector<std::unique_ptr<FakeReach>> reaches_;  // [viewer * ranks + rank]
  std::vector<std::unique_ptr<Channel>> channels_;
  int open_ = -1;  // the rank whose private memory is accessible
};

}  // namespace axccl::exec
