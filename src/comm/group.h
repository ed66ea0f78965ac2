// Groups: what ncclGroupStart and ncclGroupEnd bracket. One per thread; only the outermost end acts.
//
// Calls are collected and launched together. Jobs (creations, finalizations) are run at the end, each on a thread of
// its own because they wait for each other; where there are not so many threads to be had, none is, or one after the
// other those that can be. An error inside a group is kept: its end returns it and launches nothing.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/comm/comm.h"
#include "src/exec/launch.h"

namespace axccl::comm {

// Work that may wait for other ranks. `discard` undoes what was prepared when the group fails before the job ran.
struct GroupJob {
  bool blocking = true;
  std::function<Status()> run;
  std::function<void()> discard;
  bool in_turn = false;  // ends without the others of the group
};

class Group {
 public:
  // The calling thread's.
  static Group& Current();

  bool open() const { return depth_ != 0; }
  void Start() { ++depth_; }
  // kInvalidUsage without a start. With `seconds`: predicts instead of launching. Errors of the group itself name
  // `call`; those of the calls in it name these.
  Status End(const char* call, double* seconds = nullptr);

  void Add(exec::StreamCall call, bool blocking);
  // Within the own rank; matched in order at the end.
  void AddSelf(exec::StreamCall call, bool sending, bool blocking);
  void AddJob(GroupJob job);
  // An error of a call inside the calling thread's group, if one is open.
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
};

}  // namespace axccl::comm
