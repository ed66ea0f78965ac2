// One operation of one rank: a resumable state machine that runs a program over the caller's buffers.
//
// Progress() does what can be done without waiting. The thread that drives it holds the queue's run lock, so an
// operation is never run by two threads at once; it may move between threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/device/host/scheduler.h"
#include "src/exec/channel.h"
#include "src/exec/host/polling.h"

namespace axccl::exec {

class Operation {
 public:
  // `channel` and the buffers in `call` must outlive the operation.
  Operation(Channel* channel, const Call& call) : channel_(channel), workspace_(channel->workspace()), call_(call) {
    call_.group_order = (call.group_order || channel->group_order()) && call.OrderMatters();
  }

  device::host::Poll Progress();
  // The driving thread is about to sleep on `doorbell`.
  void Arm(int doorbell);
  bool finished() const { return stage_ == Stage::kFinished; }
  bool begun() const { return stage_ != Stage::kNew; }
  const Call& call() const { return call_; }
  // Whether it has stood still for a while, and was not asked since it last looked around.
  bool TakeStandstill() { return std::exchange(stands_still_, false); }
  const Status& status() const { return status_; }
  Channel* channel() const { return channel_; }

 private:
  enum class Run : uint8_t { kDone, kBlocked, kAgain, kSwitched, kFailed };
  enum class Stage : uint8_t { kNew, kBarrier, kMain, kLeaving, kFinished };

  struct LaneState {
    uint32_t step = 0;
    uint32_t part = 0;
    uint64_t offset = 0;  // elements of the part done
    uint64_t turn = 0;    // of this stage
  };

  Run Connect();
  Status Start();
  Status WriteRecord();
  Status Announce(OpRecord* record);
  // How peers reach this rank's memory.
  struct Spot {
    uint64_t address = 0;  // kHeap: offset in the heap
    Reach reach = Reach::kUnused;
  };
  Spot FindSpot(const void* p, uint64_t bytes) const;
  void Begin(Stage stage, const Prepared* prepared);
  void EndStage();
  device::host::Poll Fail(Status status);
  Run RunStage();
  Run RunStageWithCallback();
  Run RunLane(uint32_t lane);
  Run RunPlain();
  bool PassedPlain(const Step& step, uint64_t turn) const;
  bool MembersPresent();
  bool ReadWhileOwned();
  bool Ready(const Step& step, uint64_t turn) const;
  Run PassWait(const Step& step, uint32_t lane, uint64_t turn);
  Run Blocked(int waiting_for);
  Status SlowCheck(int waiting_for);
  std::string DescribeWait(int waiting_for) const;
  void Signal(const Step& step, uint32_t lane, uint64_t turn);

  // Buffers go back to the application (operation_leave.cc).
  device::host::Poll Leave();
  bool OthersHaveLeft();
  struct Memory {
    const std::byte* lowest;
    uint64_t bytes;
  };
  template <class Visit>
  Status ForEachOutput(Visit visit) const;
  bool OthersMayWrite() const;
  void Expose(bool exposed);
  const Member* Writer() const;
  Status TakeBackOutputs();
  Status CheckOutputs() const;

  // To remote members (operation_remote.cc).
  using Stretches = std::vector<transport::RemoteRank::Stretch>;
  void SendSignal(const Step& step, uint32_t lane, uint64_t turn);
  void AppendRecord(Stretches* stretches) const;
  void AppendSlot(const Outbound::Slot& slot, uint32_t lane, uint16_t endpoint, uint64_t turn,
                  Stretches* stretches) const;
  void TakeMessages();

  // Announced buffers (direct programs).
  Status Bind(int position);
  Result<bool> ChooseAccess();
  Status MapBuffer(const Member& member, uint64_t address, uint64_t reach, uint64_t bytes, std::byte** where,
                   bool* by_call);

  // Data movement (operation_move.cc). A portion is what one call of a mover is about.
  struct Portion {
    uint64_t turn;      // of the channel
    uint32_t part;      // of the operands
    uint64_t begin;     // elements from the start of the block
    uint64_t in_block;  // bytes from the start of the block in a buffer
    uint64_t in_part;   // bytes from the start of the part in a slot of the first set
    uint64_t count;     // elements
  };
  struct Places {
    int num_dst = 0, num_src = 0;
    bool scaled = false, to_user_only = true;
  };
  Run Move(const Step& step, uint32_t lane, LaneState* state);
  void MovePlain(const Step& step, uint64_t turn, uint64_t set);
  std::byte* Address(uint32_t operand, const Portion& portion) const;
  bool ByCall(uint32_t operand) const;
  bool AnyByCall(const Step& step) const;
  void GatherFactors(const Step& step);
  Places Gather(const Step& step, const Portion& portion);
  bool PlainCopy(const Step& step, const Places& places) const;
  void MoveLocal(const Step& step, const Places& places, uint64_t count);
  Status MoveByCall(const Step& step, const Portion& portion);
  Status Fetch(uint32_t operand, uint64_t from, std::byte* to, uint64_t bytes);

  // Calls on views (operation_view.cc). What a peer announces is read word by word, each once.
  struct AnnouncedReader {
    const std::atomic<uint64_t>* at;
    uint64_t Next() { return at++->load(std::memory_order_relaxed); }
    int64_t NextSigned() { return static_cast<int64_t>(Next()); }
  };
  enum class Side : uint8_t { kInput, kOutput };
  size_t NumViews() const { return call_.views->operands.size(); }
  MemberView& ViewAt(int position, size_t index) const { return workspace_.ViewOf(position, index); }
  void StartViews();
  void SetBlockSteps(int position, size_t index);
  Status AnnounceViews(OpRecord* record);
  size_t AnnouncedWords(int position) const;
  Status Publish(OpRecord* record);
  Memory MemoryOf(Side side, size_t index) const;
  Spot FindSpot(Side side, size_t index) const;
  Status BindViews(int position);
  Status MapView(Side side, int position, size_t index, Spot spot);
  tensor::View ViewOf(Side side, int position, size_t index) const;
  // What one operand has of a portion.
  struct Stretch {
    size_t operand;
    uint64_t in_portion;  // bytes from the start of the portion
    uint64_t begin;       // elements of the operand's block
    uint64_t count;
  };
  // Uneven calls (operation_uneven.cc).
  Status StartUneven();
  size_t PieceWords(int position) const;
  void AnnouncePieces(const ViewOperand& operand);
  void ReadPieces(int position, size_t index, AnnouncedReader* words);
  Status SettlePieces();
  struct Transfer {
    int source, block;       // of the input of a rank
    int destination, place;  // block of the output of another
  };
  template <class Visit>
  Status ForEachTransfer(const Visit& visit) const;
  Status CheckTransfer(const Transfer& transfer, size_t index);
  Status CheckTargets(int destination, size_t index) const;
  uint64_t LongestBlock() const;
  bool LeavesCache() const;
  const plan::Operand& UserOperand(const Step& step) const;
  const Piece& PieceOf(const plan::Operand& operand, size_t index) const;
  uint64_t BlockBytes(const Step& step, size_t index) const;
  plan::Range ClipToBlock(const Step& step, plan::Range range) const;
  kernels::BoxOperand Box(uint32_t operand, const Portion& portion, const Stretch& stretch) const;
  void FillZerosOfOthers() const;
  void MoveBoxes(const Step& step, uint32_t together, const Portion& portion);
  void MoveTogether(const Step* steps, uint32_t num, const Portion& portion, const Stretch& stretch);
  void ReduceTogether(const Step* steps, uint32_t num, const Portion& portion, const Stretch& stretch);
  kernels::BoxReduceRequest BoxReduction(const Step& step, const kernels::BoxRange& range, bool scaled);
  void MoveBox(const Step& step, const Portion& portion, const Stretch& stretch);

  Channel* const channel_;
  Workspace& workspace_;
  Call call_;
  Stage stage_ = Stage::kNew;
  const Prepared* prepared_ = nullptr;
  const Prepared* main_ = nullptr;  // after a barrier
  uint64_t sequence_ = 0;
  uint32_t signature_ = 0;
  uint32_t form_hash_ = 0;     // of a call on views
  bool around_cache_ = false;  // outputs go past it
  bool averages_floats_ = false;
  bool scales_ = false;         // some inputs are multiplied as they are read
  bool binds_by_call_ = false;  // some announced buffer is reached by system call
  bool scales_result_ = false;  // by post_factor_; calls on views only
  Factor post_factor_{};
  uint64_t post_divisor_ = 0;
  int64_t budget_ = 0;  // bytes this Progress() may still move
  LaneState first_lane_;
  std::vector<LaneState> more_lanes_;
  uint32_t polls_ = 0;
  bool armed_ = false;
  bool told_ = false;  // the user, of a long wait
  bool stands_still_ = false;
  bool last_look_ = false;  // the next look is the one before the driving thread sleeps
  Polling polling_;
  bool members_checked_ = false;  // in this Progress(), before members' buffers are touched
  std::chrono::steady_clock::time_point started_{}, checked_{};
  Status status_;
  // What is waited for in kLeaving.
  device::host::StepsUnderWay others_;
  bool exposed_ = false;  // its outputs, to ranks of other processes
  std::chrono::steady_clock::time_point left_{};

  LaneState& State(uint32_t lane) { return lane == 0 ? first_lane_ : more_lanes_[lane - 1]; }
};

}  // namespace axccl::exec
