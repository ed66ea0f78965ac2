// Groups: the calls between ncclGroupStart and ncclGroupEnd. One per thread; only the outermost end acts.
//
// Calls are collected and launched together. Jobs (creations, finalizations) run at the end, each on a thread of its
// own because they wait for each other. If not enough threads can be started, no job runs, unless all jobs of the group
// may run one after another (`in_turn`). An error inside a group is kept: its end returns it and launches nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/base/per_thread.h"
#include "src/base/status.h"
#include "src/comm/comm_handle.h"
#include "src/exec/platform/stream_call.h"

namespace axccl::comm {

// Work that may wait for other ranks. `discard` undoes the preparations if the group fails before the job ran.
struct GroupJob {
  std::optional<bool> blocking = true;  // of its communicator; none: the job may stand beside jobs of both kinds
  std::function<Status()> run;
  std::function<void()> discard;
  bool in_turn = false;  // ends without the other jobs of the group
};

class CallGroup {
 public:
  // The calling thread's group.
  static CallGroup& Current();

  // Whether the calling thread has an open group.
  static bool IsOpen() {
    const CallGroup* const group = PerThread<CallGroup>::Find();
    return group != nullptr && group->open();
  }

  bool open() const { return depth_ != 0; }
  void Start() { ++depth_; }
  // kInvalidUsage without a start. With `seconds`: predicts instead of launching; an inner end leaves *seconds. Errors
  // of the group itself name `call`; errors of the calls in it name those.
  Status End(const char* call, double* seconds = nullptr);

  void Add(exec::StreamCall call, bool blocking);
  // Adds a message of the rank to itself; messages are matched in order at the end.
  void AddSelf(exec::StreamCall call, bool sending, bool blocking);
  void AddJob(GroupJob job);
  // Adds what begins after the calls of the group, and waits for nothing.
  void AddStart(std::function<Status()> start, bool blocking);
  // Keeps an error of a call inside the calling thread's group, if one is open.
  static void Keep(const Status& status) noexcept;

 private:
  struct SelfMessage {
    exec::StreamCall call;
    bool sending;
  };

  void Note(bool blocking);
  Status Check(const char* call) const;
  Status MatchSelf(const char* call);
  Status RunJobs(const char* call);
  void Discard();
  double Predict() const;
  void Clear();

  int depth_ = 0;
  bool any_blocking_ = false, any_nonblocking_ = false;
  Status error_;
  std::vector<exec::StreamCall> calls_;
  std::vector<SelfMessage> self_;
  std::vector<GroupJob> jobs_;
  std::vector<std::function<Status()>> starts_;
};

}  // namespace axccl::comm
