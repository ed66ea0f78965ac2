// One shared anonymous or file-backed mapping through which the processes of a perf run on one machine meet: barriers,
// exchange of small records, and the news that one of them failed. Independent of the library under test.
//
// A page has two rooms. In kProcesses every process takes part once (its main thread), in kThreads every thread of
// every process. A room is used by all its participants in the same order; different participants may be different
// threads, one participant is one thread at a time.
//
// Memory ordering: what a participant wrote before entering a meeting is visible to all after it (the arrival counter
// is acquire-release, the epoch release/acquire).
//
// Waiting spins briefly, yields, then sleeps on a futex. It ends when all have come, when a process called Abort, or
// when a registered process is found dead; the latter two end this process through Fail(kExitPeerFailed).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "src/base/status.h"

namespace axccl::perf {

enum class Room { kProcesses = 0, kThreads = 1 };

class SharedPage {
 public:
  // Longest record of one participant in one meeting.
  static constexpr size_t kRecordBytes = 1024;
  static constexpr int kMaxProcesses = 1024;
  static constexpr int kMaxParticipants = 8192;

  // Bytes of the mapping for that many processes and threads.
  static size_t BytesNeeded(int processes, int threads);

  // A new page that children created by fork share. The caller's process is its first user.
  static Result<std::unique_ptr<SharedPage>> CreateAnonymous(int processes, int threads);
  // Maps `fd`, whose size must be BytesNeeded. `create`: initialises it; otherwise its creator must have done so
  // (kInProgress: not yet) for the same numbers (kInvalidUsage: other ones).
  static Result<std::unique_ptr<SharedPage>> MapFile(int fd, int processes, int threads, bool create);

  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  // Publishes this process's id, so that its death ends the others' waits.
  void Register(int process, pid_t pid);

  // Meets all participants of the room; the `mine` (bytes <= kRecordBytes) of each is stored in `all`, in the order of
  // the participants. `all` may be null: a barrier.
  void Meet(Room room, int participant, const void* mine, size_t bytes, void* all);

  // Ends the waits of all others. The first caller's text is kept.
  void Abort(const std::string& text);
  bool aborted() const;

 private:
  struct Meeting;
  struct Header;
  explicit SharedPage(void* base, size_t bytes) : base_(base), bytes_(bytes) {}
  static Result<std::unique_ptr<SharedPage>> Map(int flags, int fd, int processes, int threads);
  void Initialise(int processes, int threads);
  Header* header() const;
  char* Record(Room room, uint32_t parity, int participant) const;
  void WaitForEpoch(Meeting* meeting, uint32_t old_epoch);
  Status CheckPeers() const;  // kRemoteError: a process aborted the run or died

  void* base_;
  size_t bytes_;
};

}  // namespace axccl::perf
