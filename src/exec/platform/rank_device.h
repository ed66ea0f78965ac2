// A rank's device, as its communicator sees it: a communicator has exactly one.
//
// Thread-safe, except for Share, which comes before everything else, and ReleaseChannels and Disconnect, which come
// last.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/base/status.h"
#include "src/exec/call/call.h"
#include "src/exec/channel/channel.h"
#include "src/exec/platform/gather.h"
#include "src/exec/platform/pipeline.h"
#include "src/exec/platform/platform.h"
#include "src/exec/platform/stream_call.h"
#include "src/exec/platform/window.h"
#include "src/tune/tune.h"

namespace axccl::exec {

// The services of a communicator's setup for a device whose ranks need more than their blocks of shared memory.
class Setup : public Gather {
 public:
  struct Shared {
    std::byte* memory = nullptr;
    // Of a rank on another machine: keeps `memory`, a mirror, and names both ranks' memory in messages.
    std::shared_ptr<transport::Reach::Area> area;
  };
  // Collective. Returns zeroed host memory of every rank, in their order, as mapped here; all ranks have arrived when
  // it returns. The memory lives as long as the rank's block. At most once where ranks are on several machines, and
  // another collective step must come before anything is published.
  virtual Result<std::vector<Shared>> ShareMemory(size_t least_bytes) = 0;
};

// Counts of a rank's operations so far.
struct DeviceStatistics {
  uint64_t mapped = 0;     // operations between processes that moved data directly between buffers of GPUs
  uint64_t grown = 0;      // operations between processes that went through grown scratch
  uint64_t cramped = 0;    // those that could have used it, and did not
  uint64_t gpudirect = 0;  // slots that were sent to other machines from the device
  uint64_t ll = 0;         // operations whose data travelled in slots of words
  uint64_t ll128 = 0;      // operations whose data travelled in rows
};

class RankDevice : public StateMaker {
 public:
  virtual ~RankDevice() = default;
  virtual const Platform& platform() const = 0;

  // What the layers above have to mind.
  struct Traits {
    bool runs_uneven = false;           // calls may have blocks of different sizes; otherwise they are made in pieces
    bool needs_watch = false;           // CheckReport and Attend must be called repeatedly
    bool outlives_rank = false;         // peers may use its memory after Disconnect: it must live as long as the block
    bool stages_in_block = false;       // data on its way between ranks is in their blocks of shared memory
    bool maps_registered = false;       // peers map registered memory of the application that is on pages of the heap
    bool takes_areas = false;           // each created channel takes an area of the device (Connector::TakeArea)
    bool wants_whole_programs = false;  // programs need the operations of all ranks
    bool has_copy_engines = false;      // which can move the data of pipelines
    bool makes_windows = false;         // kernels use the windows of its ranks (MakeWindow)
  };
  virtual const Traits& traits() const = 0;

  // Collective over the ranks of a new communicator: how they find each other's memory. All of them agree. `members` of
  // all ranks, in their order.
  virtual Status Share(Setup* setup, const std::vector<Member>& members) = 0;

  // Finds the stream behind a handle of the application; errors name `call`. It is not pinned: as in CUDA, it must not
  // be destroyed while another thread's call uses it.
  virtual Status FindStream(void* handle, const char* call, StreamRef* stream) const = 0;
  // Returns an error unless `call` can run here.
  virtual Status CheckCall(const Call& call) const = 0;
  // Returns an error if calls cannot read what is there, in a text with the name `name`.
  virtual Status CheckReadable(const void* /*memory*/, const char* /*name*/) const { return Status(); }
  // Returns an error unless peers can map all of [memory, memory + bytes); `name` is its name in the text.
  virtual Status CheckMemory(const void* memory, size_t bytes, const char* name) const = 0;
  // Collective over `members`, which are all ranks: memory of each becomes its share of a window (window.h). All of
  // them get one, or all an error that names the first rank that has failed, unless the exchange itself fails. Where
  // windows are not for kernels, any registered memory will do as one.
  virtual Result<std::unique_ptr<Window>> MakeWindow(Gather*, const std::vector<Member>& /*members*/,
                                                     const OwnShare& /*share*/) {
    return MakeStatus(Code::kInternalError, "ranks on %s have no windows", platform().log_name());
  }
  // Where kernels find the rank's windows by addresses (NCCL's table of windows); 0 if there are none.
  virtual uint64_t window_table() const { return 0; }
  // Whether kernels reach the windows of all ranks of an LSA team at once (multimem); the same on all ranks.
  virtual bool has_multimem() const { return false; }
  // Why no memory can become a window, on any rank; ok if some can.
  virtual Status WhyNoWindows() const { return Status(); }
  // Checks and launches one call, on the caller's thread as far as it can go without waiting.
  virtual Status LaunchOne(ChannelOwner* owner, Channel* channel, const Call& call, StreamRef stream) = 0;

  // Sets what of the query of a call with others depends on the device (tune::Query).
  virtual void AddToQuery(const StreamCall& /*call*/, tune::Query* /*query*/) const {}

  // As LaunchOne, for a message from the first rank that sends one.
  virtual Status ReceiveAny(ChannelOwner* owner, AnySource any, StreamRef stream) = 0;

  // Must come before MakePipeline, and before the part has a channel: lets the part's ranks find the buffers that they
  // will read. kInvalidUsage if they cannot.
  virtual Status ShareBuffers(PipelinePart*, std::span<const int32_t> /*ranks*/) { return Status(); }
  // Makes a pipeline on the channel `on`, whose order the channels of its parts share. kInvalidUsage where the device
  // has none for these ranks.
  virtual Result<std::shared_ptr<Pipeline>> MakePipeline(Channel* on, std::vector<PipelinePart> parts) = 0;

  // Returns an error that the device has reported, or if something there waits for a member that is gone or for too
  // long; otherwise ok. To be called repeatedly if the device needs a watch. Reads memory of the host: does not wait
  // for the device's driver.
  virtual Status CheckReport() = 0;
  // Does what has to be done on the device from time to time, and returns an error if the device has failed. Likewise
  // to be called repeatedly; may wait for the driver.
  virtual Status Attend() { return Status(); }
  // Whether the device itself has reported an error, which CheckReport will return. One load.
  virtual bool has_report() const { return false; }
  // Makes everything that runs on the device end soon. Does not wait for the driver.
  virtual void Abort() = 0;
  // After that: ends what would wait all the same. To be called repeatedly; may wait for the driver.
  virtual void Relieve() {}
  // Waits until everything that was launched on the device is done. It returns only after an abort or the end of the
  // work. Work of the host's queues is waited for through its timelines instead.
  virtual void WaitIdle() = 0;
  // Releases all channels; nothing runs here any more.
  virtual void ReleaseChannels() = 0;
  // Releases the peers' memory; nothing runs here any more.
  virtual void Disconnect() = 0;
  // Whether Disconnect takes so long that it should not delay the application.
  virtual bool slow_to_disconnect() const = 0;

  virtual const char* LinkName(const Member& peer) const = 0;
  virtual DeviceStatistics statistics() const = 0;
  // The number of calls that are prepared for the channel and kept with it. Any thread may ask.
  virtual size_t PreparedCalls(const Channel& channel) const = 0;
  // The application does not intend to use the buffer soon: peers of other processes need not keep it mapped.
  virtual void LetGoOf(const void* buffer) = 0;
};

}  // namespace axccl::exec
