// Sends what the kernels of a rank publish to ranks on other machines.
//
// Each rank has a block in pinned memory of the host for that, and mirrors of those of the ranks on other machines,
// which messages keep up to date (transports/transport.h). Kernels read and write there the slots that ranks of several
// machines use (SlotsBetween). With a signal, they post the slots that travel with it, and then its line, into a ring
// in host memory; a thread of this process, the proxy, takes that from the rings of all its ranks and sends it. The
// ring has the line as it was signalled, because the kernel may have gone on since. Slots stay as they are until their
// readers have signalled, as on one machine.
//
// A kernel cannot wake a thread. So the proxy looks again and again, giving up its core in between, for a few
// milliseconds after the last launch or post, and a thousand times a second otherwise, because graphs are launched
// without the library.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/base/status.h"
#include "src/exec/channel/channel.h"
#include "transports/transport.h"

namespace axccl::exec {

class CudaProxy {
 public:
  // A rank on another machine: how it is reached, and its block in messages.
  struct Far {
    transport::Reach* reach = nullptr;  // null: it shares memory with this rank
    std::shared_ptr<transport::Reach::Area> block;
  };
  // `far` of all ranks. The ring must live until Stop, the reaches as long as this object. `cleared_from`: lines from
  // this offset on may be cleared.
  CudaProxy(kernels::cuda::ProxyRing* ring, std::vector<Far> far, uint64_t cleared_from)
      : ring_(ring), cleared_from_(cleared_from), far_(std::move(far)), waiting_(far_.size()) {}
  ~CudaProxy();
  CudaProxy(const CudaProxy&) = delete;
  CudaProxy& operator=(const CudaProxy&) = delete;
  // From now on, the thread sends what is posted.
  Status Start();
  // No kernel of the rank runs any more. The ring is not used from now on; what is being sent may still need this
  // object.
  void Stop();

  // From now on, what kernels post for the channel goes with the records of its calls. Returns its number for kernels.
  // Remove must follow; no kernel uses the channel any more then.
  uint32_t AddChannel(const Channel* channel);
  void RemoveChannel(uint32_t number);

  // Kernels have been launched that may post.
  static void Wake();
  // Sends what has been posted. Returns whether there was anything. Any thread may call it.
  bool SendPosted();
  // Lines of this rank's block become 0 in all mirrors, before anything that is sent from now on takes effect. Nothing
  // posts to them meanwhile.
  void ClearLines(uint64_t begin, uint64_t end);
  // Slots that were sent from memory of the device so far.
  uint64_t sent_from_device() const { return sent_from_device_.load(std::memory_order_relaxed); }
  // An error of sending that is not the peer's.
  Status status() const;

 private:
  using Stretch = transport::Reach::Stretch;
  using Entry = kernels::cuda::ProxyRing::Entry;

  struct Posting {
    const Channel* channel = nullptr;  // null: none has this number
    std::vector<uint32_t> recorded;  // by position: sequence numbers, from 1, of the last calls whose records were sent
    // Copies of records that are being sent, because the host writes those of later calls in their place. A peer that
    // signals for a call has got the record of the one before.
    struct Copy {
      uint32_t sequence = 0;
      std::array<uint64_t, 1 + OpRecord::kWords> words;  // the first is the number
    };
    std::array<Copy, 8> copies;
  };

  bool SendPostedLocked();
  void Take(const Entry& entry);
  void SendRecord(const Entry& line);
  static bool CopyRecord(const Channel& channel, uint32_t sequence, Posting::Copy* copy);

  kernels::cuda::ProxyRing* ring_;  // null: stopped
  const uint64_t cleared_from_;

  mutable std::mutex mutex_;  // of what follows
  std::vector<Far> far_;
  // Slots for one rank that have not been sent.
  struct Waiting {
    std::array<Stretch, 32> slots;
    size_t count = 0;
    std::set<uint64_t> lines;  // that have been sent and may be cleared
  };
  std::vector<Waiting> waiting_;
  std::deque<Posting> channels_;  // which stay where they are
  uint32_t taken_ = 0;
  std::atomic<uint64_t> sent_from_device_{0};
  Status status_;
};

}  // namespace axccl::exec
