// The run of a plan with slices on a host rank: a resumable state machine that is started again and again, for the same
// buffers on a channel of its own.
//
// Lanes wait for what they need, each for itself: a member that is late, or an input chunk that is not ready, holds up
// the lanes that need it. In the first start a rank meets each member just before it first looks at that member's
// signals: it finds the member's part of the channel, compares calls, and reads where its buffers are. Both ranks then
// know that they run the same plan, in parts of the same layout. Later starts only signal.
//
// Progress() does what can be done without waiting. The thread that drives it holds the queue's run lock. All memory is
// taken before the first start ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/spin_lock.h"
#include "src/device/host/queue.h"
#include "src/exec/host/binding.h"
#include "src/exec/host/exposure.h"
#include "src/exec/host/operands.h"
#include "src/exec/host/outbox.h"
#include "src/exec/host/shadow.h"
#include "src/exec/host/wait_monitor.h"
#include "src/exec/platform/pipeline.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

class SlicedRun {
 public:
  struct Words {
    Pipeline::Word* in;
    Pipeline::Word* out;
  };

  // `words`: of the rank's chunks of both sides; they must outlive this object.
  static Result<std::unique_ptr<SlicedRun>> Make(const PipelinePart& part, Words words);

  // Begins the next start; the last one has ended.
  void Begin() { stage_ = Stage::kNew; }
  // The words have been reset for the next start: none of its chunks has been declared ready.
  void ForgetReady();
  // Input chunk `chunk` has been declared ready; counts it in the record. Any thread.
  void CountReady(size_t chunk);
  bool HasInput(const Pipeline::Word* word) const { return word >= words_.in && word < words_.in + counted_.size(); }
  size_t InputIndex(const Pipeline::Word* word) const { return static_cast<size_t>(word - words_.in); }
  device::host::Poll Progress(int64_t budget);
  // The driving thread is about to sleep on `doorbell`.
  void Arm(int doorbell);
  // What it waits for, after Progress() returned kBlocked, if that is a single counter.
  const device::host::Awaited& awaited() const { return awaited_; }
  // Whether it has stood still for a while since it was last asked.
  bool TakeStandstill() { return monitor_.TakeStandstill(); }
  const Status& status() const { return status_; }
  Channel* channel() const { return binding_.channel; }
  const Call& call() const { return binding_.call; }
  const std::string& text() const { return text_; }  // describes the pipeline
  bool begun() const { return stage_ != Stage::kNew; }
  size_t scratch_bytes() const { return (shadow_ != nullptr ? shadow_->bytes() : 0) + scratch_bytes_; }

 private:
  enum class Stage : uint8_t { kIdle, kNew, kMain, kLeaving };
  enum class Run : uint8_t { kDone, kBlocked, kAgain, kFailed };
  struct LaneState {
    uint32_t step = 0;
    MoveProgress moved;  // of that step
  };

  SlicedRun(const PipelinePart& part, Words words);

  Status Start();
  Status WriteRecord();
  // Looks for members that have not been found, as Members::Connect.
  Result<int> Connect();
  device::host::Poll ProgressMain(int64_t budget);
  device::host::Poll End();
  device::host::Poll Fail(Status status);
  device::host::Poll Leave();
  void FailWords();
  Run RunLane(uint32_t lane);
  Run RunStep(const Step& step, uint32_t lane, LaneState* state);
  Run Move(const Step& step, uint32_t lane, LaneState* state);
  Run PassWait(const Step& step);
  Run PassAwait(const Step& step);
  Run Notify(const Step& step);
  void Signal(const Step& step, uint32_t lane);
  Run Blocked(Status over);
  Result<bool> Meet(int position);
  bool ReadWhileOwned();
  size_t NumChunks(Pipeline::Side side) const;
  void Show(OpRecord* record);
  std::string ChunksThere() const;

  Binding binding_;
  const std::string text_;
  const Operands* const operands_;
  const Words words_;
  std::unique_ptr<Shadow> shadow_;
  Prepared prepared_;
  size_t scratch_bytes_ = 0;
  uint32_t signature_ = 0;
  Stage stage_ = Stage::kIdle;
  bool announced_ = false;
  bool members_checked_ = false;  // in this pass
  int64_t budget_ = 0;            // bytes that this Progress() may still move
  device::host::Awaited awaited_;
  std::vector<LaneState> lanes_;
  std::vector<uint8_t> met_;  // by position
  size_t in_chunks_ = 0;
  // Guards the next three, if input chunks are declared ready; the thread that drives reads shown_ without.
  SpinLock count_lock_;
  OpRecord* shown_ = nullptr;     // of the start under way
  uint32_t ready_ = 0;            // input chunks declared ready since the words were reset
  std::vector<uint8_t> counted_;  // which; empty if none are to be declared
  Outbox outbox_;
  WaitMonitor monitor_;
  Exposure exposure_;
  Status status_;
};

}  // namespace axccl::exec
