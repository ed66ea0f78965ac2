// What ranks of a communicator tell those on other machines apart from its data, whatever the application does: notices
// on the lifelines between their processes (transports/remote/notice.h).
//
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/status.h"

namespace axccl::comm {

// The processes on other machines that have ranks of communicator `comm`.
struct FarProcesses {
  uint64_t comm = 0;
  std::vector<std::array<uint8_t, 16>> ids;  // each once
  std::vector<int> machines;                 // of each
  std::vector<int> of_rank;                  // by rank: its process, or -1 if it is on this machine
};

// A rank of a communicator.
class NoticeListener {
 public:
  virtual ~NoticeListener() = default;
  // `rank` has revoked the communicator. On the service thread; must not wait.
  virtual void OnRevoked(int rank) = 0;
  // What the op board of `rank` shows (comm/board.h), in `limit` bytes at most; empty if this rank cannot see it. On
  // the service thread; must not wait.
  virtual std::vector<std::byte> OnAsked(int rank, size_t limit) = 0;

 private:
  friend Result<std::vector<std::byte>> Ask(const FarProcesses& far, int rank, const NoticeListener* asker);
  friend void StopAsking(NoticeListener* asker);
  bool stopped_asking_ = false;  // with the lock under which questions are asked
};

// From now on, `listener` gets notices of that communicator from these processes, until it stops listening. Once the
// connections exist; `far` must live as long.
void ListenForNotices(const FarProcesses& far, NoticeListener* listener);
void StopListening(const FarProcesses& far, NoticeListener* listener);

// Never waits.
void TellRevoked(const FarProcesses& to, int rank);

// Asks the process of `rank`, and then, one after the other, those of its machine that have ranks, too, what the rank
// is doing. Returns the first answer (OnAsked). kTimeout: none has come for three seconds. kRemoteError: no process is
// left that can tell. kInvalidUsage: StopAsking(asker), before or meanwhile.
Result<std::vector<std::byte>> Ask(const FarProcesses& far, int rank, const NoticeListener* asker);
// Ends the questions of that rank in other threads, those that come later, too.
void StopAsking(NoticeListener* asker);

}  // namespace axccl::comm
