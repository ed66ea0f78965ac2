// One operation of one rank: a resumable state machine that runs a program over the caller's buffers.
//
// Progress() does what can be done without waiting. The thread that drives it holds the queue's run lock, so two
// threads never run an operation at once; it may move between threads.
//
// Its parts: the form of its operands (operands.h), messages to mirrored members (outbox.h), the checks during a wait
// (wait_monitor.h), and its outputs that others may write to (exposure.h).
#pragma once

#include <cstdint>
#include <vector>

#include "src/device/host/scheduler.h"
#include "src/exec/host/binding.h"
#include "src/exec/host/exposure.h"
#include "src/exec/host/handover.h"
#include "src/exec/host/operands.h"
#include "src/exec/host/outbox.h"
#include "src/exec/host/plain_call.h"
#include "src/exec/host/wait_monitor.h"

namespace axccl::exec {

class Operation {
 public:
  // `channel` and the buffers in `call` must outlive the operation.
  Operation(Channel* channel, const Call& call);
  // Continues a call that has to wait.
  Operation(Channel* channel, const Call& call, const PlainCall& begun);

  device::host::Poll Progress();
  // The driving thread is about to sleep on `doorbell`.
  void Arm(int doorbell);
  // The line that it waits for, if it has one lane.
  device::host::Awaited awaited() const { return awaited_; }
  // For Handover::Run. It has also ended if it can go on without waiting.
  Turn TakeTurn();
  // Whether what it waits for is there, or something that only Progress() can tell.
  bool MayContinue() const {
    return awaited_.counter == nullptr || awaited_.counter->load(std::memory_order_acquire) >= awaited_.value;
  }
  bool AwaitsNeighbour() const;
  bool finished() const { return stage_ == Stage::kFinished; }
  bool begun() const { return stage_ != Stage::kNew; }
  const Call& call() const { return binding_.call; }
  // Whether it has stood still for a while since it was last asked.
  bool TakeStandstill() { return monitor_.TakeStandstill(); }
  const Status& status() const { return status_; }
  Channel* channel() const { return channel_; }

 private:
  enum class Run : uint8_t { kDone, kBlocked, kAgain, kSwitched, kFailed };
  enum class Stage : uint8_t { kNew, kPutOff, kBarrier, kMain, kLeaving, kFinished };

  struct LaneState {
    uint32_t step = 0;
    MoveProgress moved;  // of that step
    uint64_t turn = 0;   // of this stage
  };

  // A step was taken.
  void NoteMove() {
    moved_ = true;
    monitor_.Restart();
  }
  Run Connect();
  Status Start();
  Status WriteRecord();
  Status BeginStages();
  void BeginMessage();
  void HearSender(bool ahead);
  void Begin(Stage stage, const Prepared* prepared);
  void EndStage();
  device::host::Poll Fail(Status status);
  // Waits until the buffers may be returned to the application.
  device::host::Poll Leave();

  Run RunStage();
  Run RunStageWithCallback();
  Run RunLane(uint32_t lane);
  Run RunPlain();
  Run Move(const Step& step, uint32_t lane, LaneState* state);
  void Signal(const Step& step, uint32_t lane, uint64_t turn);
  bool MembersPresent();
  bool ReadWhileOwned();
  Result<bool> ChooseAccess();

  Run PassWait(const Step& step, uint32_t lane, uint64_t turn);
  Run PassPutOff();
  // The signal of a member that a wait needs.
  struct Needed {
    int peer;
    MessageEnd::Wait wait;
    uint64_t turn, sequence;
    uint32_t signature;
  };
  Run AwaitSignal(const Needed& needed);
  Run Blocked(int waiting_for);
  LaneState& State(uint32_t lane) { return lane == 0 ? first_lane_ : more_lanes_[lane - 1]; }

  Channel* const channel_;
  const Operands* const operands_;
  Binding binding_;
  const Prepared* main_ = nullptr;  // after a barrier
  Stage stage_ = Stage::kNew;
  bool moved_ = false;            // in this Progress(), a step was taken
  bool members_checked_ = false;  // in this Progress(), before members' buffers are accessed
  uint32_t signature_ = 0;
  int64_t budget_ = 0;  // bytes that this Progress() may still move
  LaneState first_lane_;
  std::vector<LaneState> more_lanes_;
  device::host::Awaited awaited_;
  Outbox outbox_;
  WaitMonitor monitor_;
  Exposure exposure_;
  Status status_;
};

}  // namespace axccl::exec
