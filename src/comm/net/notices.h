// What ranks of a communicator tell those on other machines apart from its data, whatever the application does: notices
// on the lifelines between their processes (transports/remote/notice.h).
//
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace axccl::comm {

// A rank of a communicator.
class NoticeListener {
 public:
  virtual ~NoticeListener() = default;
  // `rank` has revoked the communicator. On the service thread; must not wait.
  virtual void OnRevoked(int rank) = 0;
};

// The processes on other machines that have ranks of communicator `comm`, each once.
struct FarProcesses {
  uint64_t comm = 0;
  std::vector<std::array<uint8_t, 16>> ids;
};

// From now on, `listener` gets notices of that communicator from these processes, until it stops listening. Once the
// connections exist; `far` must live as long.
void ListenForNotices(const FarProcesses& far, NoticeListener* listener);
void StopListening(const FarProcesses& far, NoticeListener* listener);

// Never waits.
void TellRevoked(const FarProcesses& to, int rank);

}  // namespace axccl::comm
