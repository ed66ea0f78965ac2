// A window on a device: memory of ranks that kernels of the application reach by the window's handle.
//
// What NCCL promises (its user guide; nccl_device.h of 2.28.7 to 2.32, whose functions are inlined into applications):
// - Ranks that reach each other's memory by load and store are an LSA team: consecutive ranks of the communicator, as
//   many in each team. So where machines have stretches of ranks of different lengths, a team has their greatest common
//   divisor.
// - A handle is the address in device memory of a struct (WindowOnDevice). Byte `offset` of the share of the team's
//   member i is at lsaFlatBase + i * stride4G * 4 GiB + offset: for ncclGetLsaPointer, i is its argument, for
//   ncclGetLocalPointer it is lsaRank, and for ncclGetPeerPointer lsaRank + (peer - worldRank).
// - All ranks register together, buffers in memory of cuMemCreate that begin at multiples of
//   NCCL_WIN_REQUIRED_ALIGNMENT. Sizes may differ from rank to rank (since 2.30; before, they had to be equal): kernels
//   mind how much there is.
// - Byte `offset` of all shares of the team at once is at lsaMultimem + mcOffset4K * 4 KiB + offset, for `multimem`
//   instructions; lsaMultimem is in a device communicator of the same communicator that asks for it, and 0 in others.
// - Deregistration is local. Until all ranks have done it, no kernel of any may use the window.
// - A device communicator (ncclDevCommCreate) has a window of memory that the library makes, zero at first, in which
//   barriers and buffers of kernels are.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/exec/channel/members.h"

namespace axccl::exec {

// The struct to which a handle points, with NCCL's names (ncclWindow_vidmem). What is for networks is 0.
struct WindowOnDevice {
  uint64_t winHost = 0;  // for the host only; not used
  uint64_t lsaFlatBase = 0;
  int32_t lsaRank = 0;
  int32_t worldRank = 0;
  uint32_t stride4G = 0;
  uint32_t mcOffset4K = 0;
  uint32_t ginOffset4K = 0;
  uint32_t padding = 0;
  uint64_t ginWins[4] = {};
  uint64_t ginMultiSegmentWins = 0;  // this and what follows: since 2.30
  int32_t numSegments = 0;
  uint32_t reserved[11] = {};
};
static_assert(sizeof(WindowOnDevice) == 128);

// The ranks first ... first + size - 1.
struct LsaTeam {
  int first = 0, size = 1;
  bool Has(int rank) const { return rank >= first && rank < first + size; }
};
// The team of `rank`; `members` of all ranks, in their order.
LsaTeam LsaTeamOf(const std::vector<Member>& members, int rank);

// What a rank registers.
struct OwnShare {
  void* memory = nullptr;
  uint64_t bytes = 0;
  bool symmetric = false;  // with NCCL_WIN_COLL_SYMMETRIC
  bool made = false;       // it is memory that is made for the window, zeroed; all ranks must ask for as much
  bool multicast = false;  // of such memory: kernels must reach all shares by one address
};

// Where all the memory is, for kernels of this rank's device.
struct WindowPlaces {
  uint64_t handle = 0;  // the address of the WindowOnDevice
  uint64_t flat = 0;    // of the share of the team's first rank
  uint64_t stride = 0;  // from one rank's to the next
  LsaTeam team;
  int ranks = 1;                     // of the communicator
  std::vector<uint64_t> bytes = {};  // of each share, in the order of the team
  uint64_t id = 0;                   // the same on all ranks, and of no other window of the communicator
  bool symmetric = false;            // all ranks have registered it with NCCL_WIN_COLL_SYMMETRIC
  // Where kernels reach all shares at once, and the offset of that from the base, which is the same for all windows of
  // the rank; 0: nowhere, and the offset of an address at which they fault.
  uint64_t multicast = 0, multicast_offset = 0, multicast_base = 0;
};

// What kernels of `rank`, one of the team, read of it.
WindowOnDevice OnDevice(const WindowPlaces& places, int rank);

// A window of this process, found by its handle while it lives. Thread-safe.
class Window {
 public:
  // `memory`: what goes when the window does, and whoever holds its places.
  Window(WindowPlaces places, std::shared_ptr<void> memory);
  // No kernel may use the window any more.
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  void* handle() const { return reinterpret_cast<void*>(held_->places.handle); }
  // Keeps the memory where it is, even if the window goes.
  std::shared_ptr<const WindowPlaces> places() const { return {held_, &held_->places}; }
  // Expires when the window goes.
  std::weak_ptr<const void> life() const { return life_; }
  // Keeps something until the window goes.
  void Hold(std::shared_ptr<void> thing) { things_.push_back(std::move(thing)); }

  // The address of a byte in the share of a member of the team, for kernels of the rank whose window it is.
  static Result<void*> AddressIn(const void* handle, uint64_t offset, int team_rank);
  // The same for a rank of the communicator; null if that is not in the team.
  static Result<void*> AddressAt(const void* handle, uint64_t offset, int rank);
  // The address of a byte in the shares of all the team at once; null if there is none. `base`: that of the window's
  // rank, or 0.
  static Result<void*> AddressOfAll(const void* handle, uint64_t offset, uint64_t base);

 private:
  static Result<WindowPlaces> Find(const void* handle);

  struct Held {
    const WindowPlaces places;
    const std::shared_ptr<void> memory;
  };
  const std::shared_ptr<const Held> held_;
  const std::shared_ptr<const char> life_ = std::make_shared<const char>();
  std::vector<std::shared_ptr<void>> things_;
};

}  // namespace axccl::exec
